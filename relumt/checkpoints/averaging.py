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
        UserError: a checkpoint is quantized, its parameters are not finite, or they or its model settings differ from
            the first one's, or it was trained with another seed.
    """
    checkpoints = iter(checkpoints)
    first_path, first = next(checkpoints)
    require_finite_parameters(first, first_path)
    model = first["model"]
    shapes, settings = parameter_shapes(first), fairseq_config(first, first_path)["model"]
    if hasattr(settings, "quantized_bits"):
        raise UserError(f"{first_path}: is quantized; average the float checkpoints, and quantize their average")
    sums = {name: tensor.double() for name, tensor in model.items() if tensor.is_floating_point()}
    count = 1
    for path, checkpoint in checkpoints:
        if parameter_shapes(checkpoint) != shapes:
            raise UserError(f"{path}: has other parameters than {first_path}; average checkpoints of one training run")
        if fairseq_config(checkpoint, path)["model"] != settings:
            raise UserError(f"{path}: is another model than {first_path}; average checkpoints of one training run")
        if training_seed(checkpoint) != training_seed(first):
            raise UserError(f"{path}: has another seed than {first_path}; average checkpoints of one training run")
        require_finite_parameters(checkpoint, path)
        for name in sums:
            sums[name] += checkpoint["model"][name].double()
        count += 1
    means = {name: (total / count).to(model[name].dtype) for name, total in sums.items()}
    # Optimizer states have no meaningful average.
    others = {name: value for name, value in first.items() if name != "last_optimizer_state"}
    return others | {"model": model | means}


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
