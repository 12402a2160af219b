"""Averages the parameters of several checkpoints of one training run, as [RL] §5 does with the last 5.

All parameters are averaged, including those of mechanisms and activations. The result translates like any checkpoint,
but training cannot resume from it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relumt.checkpoints.loading import load_checkpoint_safely
from relumt.checkpoints.saving import save_checkpoint_durably
from relumt.checkpoints.seed import training_seed
from relumt.checkpoints.settings import fairseq_config
from relumt.errors import UserError

NUM_AVERAGED = "num_averaged"
"""Key of an average, which has the number of averaged checkpoints."""


def write_average(paths: Iterable[Path], out: Path) -> None:
    """Write the average of checkpoints to `out`; raises UserError as `average_checkpoints` does."""
    averaged = average_checkpoints((path, load_checkpoint_safely(path)) for path in paths)
    save_checkpoint_durably(averaged, out)


def average_checkpoints(checkpoints: Iterable[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """Return the first checkpoint with its model replaced by the mean of all models.

    Floating-point parameters are summed in double precision. Integers, such as update counts, are the first model's.

    Args:
        checkpoints: their paths, for error messages, and contents.

    Raises:
        UserError: a checkpoint is an average, its parameters are not finite, or it belongs to another
            training than the first one; or two were saved after the same update.
    """
    checkpoints = iter(checkpoints)
    first_path, first = next(checkpoints)
    require_averageable(first, first_path)
    model = first["model"]
    # A copy of each: names of one matrix share their tensor, which a sum in place would change once per name.
    sums = {name: tensor.clone().double() for name, tensor in model.items() if tensor.is_floating_point()}
    saved = [(first_path, saved_update(first))]
    for path, checkpoint in checkpoints:
        require_averageable(checkpoint, path)
        require_same_training(checkpoint, path, first, first_path)
        update = saved_update(checkpoint)
        for other, earlier in saved:
            if update is not None and update == earlier:
                raise UserError(f"{path} and {other} were both saved after {update} updates; give one of them")
        saved.append((path, update))
        for name in sums:
            sums[name] += checkpoint["model"][name].double()
    means = {name: (total / len(saved)).to(model[name].dtype) for name, total in sums.items()}
    # Optimizer states have no meaningful average.
    others = {name: value for name, value in first.items() if name != "last_optimizer_state"}
    return others | {"model": model | means, NUM_AVERAGED: len(saved)}


def require_averageable(checkpoint: dict[str, Any], path: Path) -> None:
    """Raise UserError if a checkpoint is an average itself, or if its parameters are not finite."""
    if NUM_AVERAGED in checkpoint:
        raise UserError(f"{path}: is an average; give the checkpoints that training saved")
    require_finite_parameters(checkpoint, path)


def require_same_training(checkpoint: dict[str, Any], path: Path, first: dict[str, Any], first_path: Path) -> None:
    """Raise UserError unless two checkpoints have the same shapes, model settings, criterion and seed."""
    same_training = "average checkpoints of one training run"
    if parameter_shapes(checkpoint) != parameter_shapes(first):
        raise UserError(f"{path}: has other parameters than {first_path}; {same_training}")
    config, first_config = fairseq_config(checkpoint, path), fairseq_config(first, first_path)
    if config["model"] != first_config["model"]:
        raise UserError(f"{path}: is another model than {first_path}; {same_training}")
    criterion, first_criterion = config["criterion"] or {}, first_config["criterion"] or {}
    for name in sorted(criterion.keys() & first_criterion.keys()):  # older versions of relumt did not store all
        if criterion[name] != first_criterion[name]:
            raise UserError(
                f"{path}: was trained with another criterion than {first_path} ({name} is {criterion[name]} instead of "
                f"{first_criterion[name]}); {same_training}, or train on until the last ones have one criterion"
            )
    if training_seed(checkpoint) != training_seed(first):
        raise UserError(f"{path}: has another seed than {first_path}; {same_training}")


def saved_update(checkpoint: dict[str, Any]) -> int | None:
    """Return the number of updates before a checkpoint was saved; None if somebody removed the optimizer's history."""
    history = checkpoint.get("optimizer_history")
    return history[-1]["num_updates"] if history else None


def require_finite_parameters(checkpoint: dict[str, Any], path: Path) -> None:
    """Raise UserError if a parameter is infinite or NaN."""
    for name, tensor in checkpoint["model"].items():
        if not tensor.isfinite().all():
            raise UserError(
                f"{path}: its parameter {name} is infinite or NaN, since training diverged; average earlier checkpoints"
            )


def parameter_shapes(checkpoint: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter."""
    return {name: tuple(tensor.shape) for name, tensor in checkpoint["model"].items()}
