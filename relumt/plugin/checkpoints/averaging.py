"""Compares the models of checkpoints, and averages those of one training run, as [RL] §5 does with the last 5.

Attention mechanisms, heads, gates and vocabularies of one size have parameters of the same names and shapes, so fairseq
would load a softmax checkpoint into a ReLUFormer and train on.
"""

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.plugin.checkpoints.loading import load_checkpoint_safely, stored_settings, training_seed
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from relumt.plugin.options import VARIANT_CHOICES

NUM_AVERAGED = "num_averaged"
"""Key of an average, which has the number of averaged checkpoints."""

COMPARED_SETTINGS = (
    *(
        f"{side}_{setting}"
        for side in ("encoder", "decoder")
        for setting in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "normalize_before", "learned_pos")
    ),
    *("activation_fn", "attention_gate", "layernorm_embedding", "no_scale_embedding", "no_token_positional_embeddings"),
    *("no_cross_attention", "cross_self_attention", "share_all_embeddings", "share_decoder_input_output_embed"),
    "vocabulary_fingerprint",
)
"""Settings of fairseq's Transformer, and of relumt, that change what the same weights compute, or their shapes.

Dropout and other settings of training may differ.
"""

FREE_OPTIONS = ("relu_initial_score", "relu_initial_gain", "inhibitor_initial_distance", "inhibitor_implementation")
"""Options of mechanisms that concern only the initial weights or the speed."""

SHARING_FLAGS = (("share_all_embeddings",), ("share_decoder_input_output_embed", "share_all_embeddings"))
"""Settings that share a matrix: between both languages, and between input and output of the decoder.

Each of a group's settings shares it.
"""


def refuse_other_model(stored: Any, requested: Any, path: str) -> None:
    """Raise UserError if a training of the model `requested` cannot go on from a checkpoint of the model `stored`.

    Args:
        stored: settings of the checkpoint's model; those that it lacks, as of an older version, are not compared.
        requested: settings of the model that is to be trained.
        path: path of the checkpoint, for the error message.
    """
    if differences := describe_differences(stored, requested):
        raise UserError(
            f"{path}: belongs to another model, with {differences}; train the same model, choose another --save-dir, "
            "or pass the checkpoint to --finetune-from-model to start a new training from its weights"
        )


def describe_differences(stored: Any, requested: Any) -> str:
    """Return in what two models differ, with the values in both; "" if their weights compute the same."""
    names, differences = [*COMPARED_SETTINGS], []
    for choice in VARIANT_CHOICES:
        for site in choice.sites:
            old, new = choice.name_at(stored, site), choice.name_at(requested, site)
            if old != new:
                differences.append(f"{choice.name} at the site '{site}' {old} (now {new})")
            elif old in choice.registry:
                options = {attribute for attribute, _ in choice.registry[old].flags()}
                names += sorted(options.difference(FREE_OPTIONS, names))
    for name in names:
        if hasattr(stored, name) and hasattr(requested, name) and getattr(stored, name) != getattr(requested, name):
            label = "the vocabulary" if name == "vocabulary_fingerprint" else flag_name(name)
            differences.append(f"{label} {getattr(stored, name)} (now {getattr(requested, name)})")
    return ", ".join(differences)


def refuse_other_embeddings(stored: Any, requested: Any, path: str) -> None:
    """Raise UserError if the embeddings of `stored` would get the places of other words in `requested`, or be lost.

    They are lost if several matrices become one: fairseq would load each into it, so that only the last would remain.
    See `refuse_other_model` for the arguments.
    """
    vocabularies = {getattr(model, "vocabulary_fingerprint", None) for model in (stored, requested)}
    if len(vocabularies - {None}) > 1:
        raise UserError(
            f"{path}: was trained with another vocabulary; prepare the data with its dictionaries (fairseq-preprocess "
            "--srcdict, --tgtdict and its BPE codes), or start from other weights"
        )
    for flags in SHARING_FLAGS:
        is_shared = [any(getattr(model, flag, False) for flag in flags) for model in (stored, requested)]
        if hasattr(stored, flags[0]) and is_shared == [False, True]:
            given = next(flag for flag in flags if getattr(requested, flag, False))
            raise UserError(
                f"{path}: has separate embeddings, and {flag_name(given)} would keep only the last; drop the flag"
            )


def write_average(paths: Iterable[Path], out: Path) -> None:
    """Write the average of checkpoints to `out`; raises UserError as `average_checkpoints` does."""
    save_checkpoint_durably(average_checkpoints((path, load_checkpoint_safely(path)) for path in paths), out)


def average_checkpoints(checkpoints: Iterable[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """Return the first checkpoint with its model replaced by the mean of all models.

    All parameters are averaged, including those of mechanisms and activations. Floating-point parameters are summed in
    double precision. Integers, such as update counts, are the first model's. The result translates like any checkpoint,
    but training cannot resume from it.

    Args:
        checkpoints: their paths, for error messages, and contents.

    Raises:
        UserError: a checkpoint is an average, its parameters are not finite, or it belongs to another
            training than the first one; or two were saved after the same update.
    """
    saved: dict[Any, Path] = {}
    first_path, first, sums, count = Path(), {}, {}, 0
    for count, (path, checkpoint) in enumerate(checkpoints, 1):
        _require_finite_training(checkpoint, path)
        history = checkpoint.get("optimizer_history") or [{}]
        update = history[-1].get("num_updates")
        if count == 1:
            first_path, first = path, checkpoint
            # A copy of each: names of one matrix share their tensor, which a sum in place would change once per name.
            model = {name: tensor for name, tensor in checkpoint["model"].items() if tensor.is_floating_point()}
            sums = {name: tensor.clone().double() for name, tensor in model.items()}
        else:
            _require_same_training(checkpoint, path, first, first_path)
            if update is not None and update in saved:
                raise UserError(f"{path} and {saved[update]} were both saved after {update} updates; give one of them")
            for name in sums:
                sums[name] += checkpoint["model"][name].double()
        saved[update] = path
    means = {name: (total / count).to(first["model"][name].dtype) for name, total in sums.items()}
    # Optimizer states have no meaningful average.
    others = {name: value for name, value in first.items() if name != "last_optimizer_state"}
    return others | {"model": first["model"] | means, NUM_AVERAGED: count}


def _require_finite_training(checkpoint: dict[str, Any], path: Path) -> None:
    """Raise UserError if a checkpoint is an average itself, or if its parameters are not finite."""
    if NUM_AVERAGED in checkpoint:
        raise UserError(f"{path}: is an average; give the checkpoints that training saved")
    for name, tensor in checkpoint["model"].items():
        if not tensor.isfinite().all():
            raise UserError(
                f"{path}: its parameter {name} is infinite or NaN, since training diverged; average earlier checkpoints"
            )


def _require_same_training(checkpoint: dict[str, Any], path: Path, first: dict[str, Any], first_path: Path) -> None:
    """Raise UserError unless two checkpoints have the same shapes, model settings, criterion and seed."""
    shapes = [{name: tensor.shape for name, tensor in each["model"].items()} for each in (first, checkpoint)]
    models = [Namespace(**stored_settings(each, "model")) for each in (first, checkpoint)]
    old, new = (stored_settings(each, "criterion") for each in (first, checkpoint))
    changed = [name for name in old if name in new and old[name] != new[name]]  # older versions did not store all
    differences = {
        "parameters": "other shapes" if shapes[0] != shapes[1] else "",
        "model": describe_differences(*models),
        "criterion": ", ".join(f"{name} {old[name]} (now {new[name]})" for name in changed),
        "seed": "" if training_seed(first) == training_seed(checkpoint) else f"{training_seed(checkpoint)}",
    }
    for kind, found in differences.items():
        if found:
            raise UserError(
                f"{path}: differs from {first_path} in its {kind}: {found}; average checkpoints of one training run"
            )
