"""Checks of a model's arguments, with one-line errors where fairseq would fail with a traceback or misbehave."""

from argparse import Namespace

from fairseq.tasks import FairseqTask

from relumt.attention.kernels import dispatch
from relumt.errors import UserError


def check_arguments(args: Namespace, task: FairseqTask) -> None:
    """Raise UserError if arguments contradict each other, the data-bin, or what these models support."""
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_xformers_att_config", None):
            raise UserError(f"--{side}-xformers-att-config replaces the attention; drop it or use --arch transformer")
        embed_dim, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if heads < 1 or embed_dim % heads:
            raise UserError(
                f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {embed_dim}; "
                "choose a number that does"
            )
    # Activation checkpointing would recompute the logged layers, without the hook and with another dropout mask.
    if getattr(args, "log_attention_interval", None) and getattr(args, "checkpoint_activations", False):
        raise UserError(
            "--log-attention-interval cannot observe layers under --checkpoint-activations; drop one of the two"
        )
    if getattr(args, "criterion", None) == "label_smoothed_cross_entropy_with_alignment":
        raise UserError(
            f"--criterion {args.criterion} needs attention weights in training, but --arch {args.arch} does not "
            "compute them; use --arch transformer_align"
        )
    if getattr(args, "share_all_embeddings", False):
        check_shared_embeddings(args, task)
    try:
        dispatch.kernel_choice()
    except ValueError as error:  # would otherwise surface in the first training step
        raise UserError(str(error)) from None


def check_shared_embeddings(args: Namespace, task: FairseqTask) -> None:
    """Raise UserError if encoder and decoder cannot share one embedding matrix."""
    if args.encoder_embed_dim != args.decoder_embed_dim:
        raise UserError(
            f"--share-all-embeddings needs equal sizes, but --encoder-embed-dim is {args.encoder_embed_dim} and "
            f"--decoder-embed-dim is {args.decoder_embed_dim}; make them equal, or drop the flag"
        )
    if task.source_dictionary != task.target_dictionary:
        raise UserError(
            f"--share-all-embeddings needs one dictionary for both languages, but {task.cfg.data} has two; prepare it "
            "without --separate-dictionaries, or drop the flag"
        )
