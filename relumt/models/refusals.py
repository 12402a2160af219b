"""What cannot be asked of `mechanism_transformer`: one line, where fairseq would end in a traceback or go wrong."""

from argparse import Namespace

from fairseq.tasks import FairseqTask

from relumt.attention.kernels import dispatch
from relumt.errors import UserError


def refuse_impossible(args: Namespace, task: FairseqTask) -> None:
    """Raise UserError where flags contradict each other, the data-bin or what these models can do."""
    refuse_xformers(args)
    refuse_checkpointed_log(args)
    refuse_supervised_alignment(args)
    refuse_uneven_heads(args)
    refuse_unshareable_embeddings(args, task)
    refuse_unknown_kernels()


def refuse_xformers(args: Namespace) -> None:
    """fairseq's own replacement of attention beside ours."""
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_xformers_att_config", None):
            raise UserError(f"--{side}-xformers-att-config replaces the attention; drop it or use --arch transformer")


def refuse_checkpointed_log(args: Namespace) -> None:
    """Layers that are watched would be computed again, unwatched, with other dropout."""
    if getattr(args, "log_attention_interval", None) and getattr(args, "checkpoint_activations", False):
        raise UserError(
            "--log-attention-interval cannot watch layers under --checkpoint-activations; drop one of the two"
        )


def refuse_supervised_alignment(args: Namespace) -> None:
    """A criterion that wants the weights of a training step, which are not built."""
    if getattr(args, "criterion", None) == "label_smoothed_cross_entropy_with_alignment":
        raise UserError(
            f"--criterion {args.criterion} needs attention weights in training, which --arch {args.arch} does not "
            "give; use --arch transformer_align"
        )


def refuse_uneven_heads(args: Namespace) -> None:
    """Widths that cannot be divided among the heads."""
    for side in ("encoder", "decoder"):
        width, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if heads < 1 or width % heads:
            raise UserError(
                f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {width}; give a number that does"
            )


def refuse_unshareable_embeddings(args: Namespace, task: FairseqTask) -> None:
    """One embedding for two dictionaries, or of two sizes."""
    if not getattr(args, "share_all_embeddings", False):
        return
    sizes = args.encoder_embed_dim, args.decoder_embed_dim
    if sizes[0] != sizes[1]:
        raise UserError(
            f"--share-all-embeddings needs one size, not --encoder-embed-dim {sizes[0]} and --decoder-embed-dim "
            f"{sizes[1]}; give both the same, or leave out the flag"
        )
    if task.source_dictionary != task.target_dictionary:
        raise UserError(
            f"--share-all-embeddings needs one dictionary for both languages, and {task.cfg.data} has two; prepare it "
            "without --separate-dictionaries, or leave out the flag"
        )


def refuse_unknown_kernels() -> None:
    """A RELUMT_KERNELS that would be found out at the first step."""
    try:
        dispatch.chosen()
    except ValueError as error:
        raise UserError(str(error)) from None
