"""Compares the models of checkpoints, and averages those of one training run, as [RL] §5 does with the last 5.

Attention mechanisms, numbers of heads and vocabularies of one size have parameters of the same names and shapes, so
fairseq would load a softmax checkpoint into a ReLUFormer and train on.
"""

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.plugin.checkpoints.loading import load_checkpoint_safely, stored_settings
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from relumt.plugin.options import VARIANT_CHOICES

NUM_AVERAGED = "num_averaged"
"""Key of an average, which has the number of averaged checkpoints."""

VOCABULARY = "vocabulary_fingerprint"

COMPARED_SETTINGS = (
    *("encoder_attention_heads", "decoder_attention_heads", "activation_fn", "no_scale_embedding"),
    *("no_token_positional_embeddings", "share_all_embeddings", "share_decoder_input_output_embed", VOCABULARY),
    "attention_qk_norm",
)
"""Settings that change what the same weights compute. fairseq notices others, which change the names or shapes."""

FREE_OPTIONS = ("relu_initial_score", "relu_initial_gain", "inhibitor_initial_distance", "inhibitor_implementation")
"""Options of mechanisms that concern only the initial weights or the speed."""


def refuse_other_model(stored: Any, requested: Any, path: str, is_new_training: bool = False) -> None:
    """Raise UserError if a training of the model `requested` cannot go on from a checkpoint of the model `stored`.

    Args:
        stored: settings of the checkpoint's model; those that it lacks, as of an older version, are not compared.
        requested: settings of the model that is to be trained.
        path: path of the checkpoint, for the error message.
        is_new_training: whether a new training begins with the weights; then only the vocabulary must be the same.
    """
    differences = describe_differences(stored, requested)
    if VOCABULARY in differences:
        raise UserError(
            f"{path}: was trained with another vocabulary; prepare the data with its dictionaries (fairseq-preprocess "
            "--srcdict, --tgtdict and its BPE codes), or start from other weights"
        )
    if differences and not is_new_training:
        raise UserError(
            f"{path}: belongs to another model, with {', '.join(differences.values())}; train the same model, choose "
            "another --save-dir, or pass the checkpoint to --finetune-from-model to start a new training from its "
            "weights"
        )


def describe_differences(stored: Any, requested: Any) -> dict[str, str]:
    """Return the settings in which what two models compute differs → a text with the values in both."""
    names, differences = [*COMPARED_SETTINGS], {}
    for choice in VARIANT_CHOICES:
        for site in choice.sites:
            old, new = choice.name_at(stored, site), choice.name_at(requested, site)
            if old != new:
                differences[f"{choice.name}_{site}"] = f"{choice.name} at the site '{site}' {old} (now {new})"
            elif old in choice.registry:
                options = {attribute for attribute, _ in choice.registry[old].flags()}
                names += sorted(options.difference(FREE_OPTIONS))
    for name in names:
        if hasattr(stored, name) and hasattr(requested, name) and getattr(stored, name) != getattr(requested, name):
            differences[name] = f"{flag_name(name)} {getattr(stored, name)} (now {getattr(requested, name)})"
    return differences


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
        UserError: a checkpoint is an average or belongs to another training than the first one, or two were saved after
            the same update.
    """
    saved: dict[Any, Path] = {}
    first_path, first, sums, count = Path(), {}, {}, 0
    for count, (path, checkpoint) in enumerate(checkpoints, 1):
        if NUM_AVERAGED in checkpoint:
            raise UserError(f"{path}: is an average; give the checkpoints that training saved")
        history = checkpoint.get("optimizer_history") or [{}]
        update = history[-1].get("num_updates")
        if update is not None and update in saved:
            raise UserError(f"{path} and {saved[update]} were both saved after {update} updates; give one of them")
        saved[update] = path
        if count == 1:
            first_path, first = path, checkpoint
            # A copy of each: names of one matrix share their tensor, which a sum in place would change once per name.
            model = {name: tensor for name, tensor in checkpoint["model"].items() if tensor.is_floating_point()}
            sums = {name: tensor.clone().double() for name, tensor in model.items()}
            continue
        _require_same_training(checkpoint, path, first, first_path)
        for name in sums:
            sums[name] += checkpoint["model"][name].double()
    means = {name: (total / count).to(first["model"][name].dtype) for name, total in sums.items()}
    # Optimizer states have no meaningful average.
    others = {name: value for name, value in first.items() if name != "last_optimizer_state"}
    return others | {"model": first["model"] | means, NUM_AVERAGED: count}


def _require_same_training(checkpoint: dict[str, Any], path: Path, first: dict[str, Any], first_path: Path) -> None:
    """Raise UserError unless two checkpoints have the same shapes, model settings and seed."""
    shapes = [{name: tensor.shape for name, tensor in each["model"].items()} for each in (first, checkpoint)]
    models = [Namespace(**stored_settings(each, "model")) for each in (first, checkpoint)]
    seeds = [stored_settings(each, "common").get("seed") for each in (first, checkpoint)]
    differences = [*describe_differences(*models).values()]
    differences += ["parameters of other shapes"] * (shapes[0] != shapes[1])
    differences += [f"--seed {seeds[0]} (now {seeds[1]})"] * (seeds[0] != seeds[1])
    if differences:
        raise UserError(
            f"{path}: differs from {first_path}: {', '.join(differences)}; average checkpoints of one training run"
        )
