"""Checks of a model's arguments and of generation: one-line errors where fairseq would fail or misbehave."""

from argparse import Namespace
from typing import Any

from fairseq.tasks import FairseqTask

from relumt.attention.feedforward import FeedForward
from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.kernel_setting import kernel_choice
from relumt.plugin.options import FEEDFORWARD_CHOICE
from relumt.plugin.training_device import check_translation_in_bf16

MAX_SIZE = 1 << 20
"""The largest size of a layer and number of positions: for more, building the model takes all memory."""

MAX_LAYERS = 1 << 10

SIZES = {
    "embed_dim": (4, MAX_SIZE),  # fairseq's sinusoidal positions divide by embed_dim // 2 − 1
    "ffn_embed_dim": (1, MAX_SIZE),
    "attention_heads": (1, MAX_SIZE),
    "layers": (1, MAX_LAYERS),
}
"""Sizes of both sides → the smallest and the largest that are allowed."""

PROBABILITIES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "quant_noise_pq",
    "quant_noise_scalar",
)


def check_arguments(args: Namespace, task: FairseqTask) -> None:
    """Raise UserError if arguments contradict each other, the data-bin, or what these models support."""
    check_sizes(args)
    check_probabilities(args)
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_xformers_att_config", None):
            raise UserError(f"--{side}-xformers-att-config replaces the attention; drop it or use --arch transformer")
    if getattr(args, "no_cross_attention", False) and getattr(args, "attention_cross", None):
        raise UserError("--attention-cross has no effect with --no-cross-attention; drop one of them")
    check_block_size(args)
    check_output_layer(args)
    # Activation checkpointing would recompute the logged layers, without the hook and with another dropout mask.
    for name in ("offload_activations", "checkpoint_activations"):  # the first implies the second
        if getattr(args, "log_attention_interval", None) and getattr(args, name, False):
            raise UserError(f"--log-attention-interval cannot observe layers under {flag_name(name)}; drop one of them")
    if getattr(args, "criterion", None) == "label_smoothed_cross_entropy_with_alignment":
        raise UserError(
            f"--criterion {args.criterion} needs attention weights in training, but --arch {args.arch} does not "
            "compute them; use --arch transformer_align"
        )
    if getattr(args, "share_all_embeddings", False):
        check_shared_embeddings(args, task)
    kernel_choice()  # checked here, before the first training step asks for it


def check_sizes(args: Namespace) -> None:
    """Raise UserError if a size is too small or too large, or the heads do not divide the model size."""
    limits = {f"{side}_{name}": limit for side in ("encoder", "decoder") for name, limit in SIZES.items()}
    limits |= dict.fromkeys(
        ("decoder_input_dim", "decoder_output_dim", "max_source_positions", "max_target_positions"), (1, MAX_SIZE)
    )
    for name, (least, most) in limits.items():
        size = getattr(args, name, None)
        # fairseq leaves some sizes as text
        if size is not None and not (str(size).isdecimal() and least <= int(size) <= most):
            raise UserError(f"{flag_name(name)} is {size}; choose a number from {least} to {most}")
    for side in ("encoder", "decoder"):
        embed_dim, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if embed_dim % heads:
            raise UserError(
                f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {embed_dim}; "
                "choose a number that does"
            )


def check_probabilities(args: Namespace) -> None:
    """Raise UserError if a probability or a setting of the loss is out of range; NaN is, too."""
    for name in PROBABILITIES:
        if not 0 <= getattr(args, name, 0.0) <= 1:
            raise UserError(f"{flag_name(name)} is {getattr(args, name)}; choose a number from 0 to 1")
    if getattr(args, "quant_noise_pq", 0.0) == 1:
        raise UserError("--quant-noise-pq is 1, which drops every weight; choose a smaller number")
    smoothing = getattr(args, "label_smoothing", 0.0)
    if not 0 <= smoothing < 1:
        raise UserError(f"--label-smoothing is {smoothing}; choose a number from 0 to below 1")
    if getattr(args, "ignore_prefix_size", 0) < 0:
        raise UserError(f"--ignore-prefix-size is {args.ignore_prefix_size}; choose a number from 0")


def check_block_size(args: Namespace) -> None:
    """Raise UserError if the blocks of --quant-noise-pq do not divide the input of every layer."""
    if not getattr(args, "quant_noise_pq", 0.0):
        return
    block_size = args.quant_noise_pq_block_size
    if block_size < 1:
        raise UserError(f"--quant-noise-pq-block-size is {block_size}; choose a number from 1")
    for side in FEEDFORWARD_CHOICE.sites:
        feedforward: FeedForward = FEEDFORWARD_CHOICE.build(args, side)
        inputs = {
            f"--{side}-embed-dim": getattr(args, f"{side}_embed_dim"),
            f"the number of slots for --{side}-ffn-embed-dim": feedforward.num_slots(
                getattr(args, f"{side}_ffn_embed_dim")
            ),
        }
        for name, size in inputs.items():
            if size % block_size:
                raise UserError(
                    f"--quant-noise-pq-block-size {block_size} does not divide {size}, {name}; choose a number that "
                    "does"
                )


def check_output_layer(args: Namespace) -> None:
    """Raise UserError if the output layer does not suit the criterion or the embeddings."""
    criterion = getattr(args, "criterion", None)
    if getattr(args, "adaptive_softmax_cutoff", None) and criterion not in (None, "adaptive_loss"):
        raise UserError(
            f"--adaptive-softmax-cutoff works with --criterion adaptive_loss only, not with {criterion}; drop the flag"
        )
    shares = getattr(args, "share_decoder_input_output_embed", False)
    if getattr(args, "adaptive_softmax_cutoff", None) and (shares or getattr(args, "share_all_embeddings", False)):
        raise UserError(
            "--adaptive-softmax-cutoff with shared embeddings writes checkpoints that fairseq cannot load; drop "
            "--share-decoder-input-output-embed and --share-all-embeddings, or the cutoff"
        )
    output_dim = int(getattr(args, "decoder_output_dim", args.decoder_embed_dim))
    if shares and output_dim != args.decoder_embed_dim:
        raise UserError(
            f"--share-decoder-input-output-embed needs equal sizes, but --decoder-output-dim is {output_dim} and "
            f"--decoder-embed-dim is {args.decoder_embed_dim}; make them equal, or drop the flag"
        )


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


def check_generation(cfg: Any) -> None:
    """Raise UserError if settings of fairseq-generate do not suit these models."""
    if getattr(cfg.generation, "replace_unk", None) is not None:
        raise UserError(
            "--replace-unk fails in fairseq with the alignments of its Transformers; drop the flag, and use subwords "
            "or --print-alignment instead"
        )
    if cfg.common.bf16:
        check_translation_in_bf16(cfg.common.cpu, cfg.generation)
