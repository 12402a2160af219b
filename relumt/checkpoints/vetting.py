"""What of a checkpoint fairseq may see: its settings, weights and training state, all of the expected types."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import torch
from msgspec import Meta
from torch import Tensor

from relumt.checkpoints.settings import check_settings, describe_value, fairseq_config
from relumt.errors import UserError

Count = Annotated[int, Meta(ge=0, le=2**53)]
MeterName = Literal["AverageMeter", "SumMeter", "ConcatTensorMeter", "TimeMeter", "StopwatchMeter"]
"""fairseq looks up a meter's class by this name among all names in its module."""


class OptimizerEntry(msgspec.Struct):
    """An entry of "optimizer_history"."""

    num_updates: Count
    criterion_name: str = ""
    optimizer_name: str = ""
    lr_scheduler_state: dict[str, Any] = {}


class IteratorState(msgspec.Struct):
    """Where in the training data a checkpoint was saved."""

    epoch: Count
    iterations_in_epoch: Count = 0
    shuffle: bool = True
    len: Count = 0
    version: Count = 1


class ExtraState(msgspec.Struct):
    """Data position and logged values."""

    train_iterator: IteratorState
    metrics: dict[str, list[tuple[int, str, MeterName, dict[str, Any]]]] = {}
    previous_training_time: Any = 0
    val_loss: Any = None
    best: Any = None

    def __post_init__(self) -> None:
        """Check the training time, and the validation losses if there are any."""
        _require_number("previous_training_time", self.previous_training_time)
        for name, loss in (("val_loss", self.val_loss), ("best", self.best)):
            if loss is not None:
                _require_number(name, loss)


def _require_number(name: str, value: Any) -> None:
    """Raise ValueError unless a value is a number, or a tensor of one, as after training on several devices."""
    if not isinstance(value, int | float) and not (isinstance(value, Tensor) and value.ndim == 0):
        raise ValueError(f"Expected a number at `{name}`, got {describe_value(value)}")


RESUMED = ("optimizer_history", "extra_state", "last_optimizer_state")
"""Entries of a checkpoint without which training cannot resume."""

STATE_TYPES: dict[str, Any] = {
    "optimizer_history": list[OptimizerEntry] | None,
    "extra_state": ExtraState | None,
    "last_optimizer_state": dict[str, Any] | None,
    "task_state": dict[str, Any] | None,
}
"""Entry of a checkpoint's training state → its type. Averages and stripped checkpoints lack some."""


def vet_checkpoint(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return a checkpoint that fairseq can load: names and values are known to be harmless, and nothing is missing.

    Args:
        checkpoint: its contents.
        path: its path, for error messages.

    Returns:
        The same weights and training state; the settings that `fairseq_config` allows. A checkpoint without training
        state gets an empty one, because fairseq needs it for translation too.

    Raises:
        UserError: something is not allowed, or not of the expected type.
    """
    config = fairseq_config(checkpoint, path)
    check_weights(checkpoint["model"], config["model"], path)
    if checkpoint.get("criterion") is not None:
        check_tensors(checkpoint["criterion"], "criterion", path)
    state = check_settings(checkpoint, STATE_TYPES, path)
    vetted = dict(checkpoint) | {"cfg": config, "args": None, "model": dict(checkpoint["model"]), "task_state": {}}
    if not state.get("optimizer_history") or not state.get("extra_state"):
        vetted |= empty_training_state()
    return vetted


def empty_training_state() -> dict[str, Any]:
    """Return the training state of a checkpoint that has only weights, as far as fairseq needs it for translation."""
    entry = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {
        "optimizer_history": [entry],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }


def check_weights(weights: Any, settings: Namespace, path: Path | str) -> None:
    """Raise UserError if the weights are not plain tensors, or not those of a model with these settings.

    fairseq first builds the model of the settings, which may need more memory than there is.
    """
    check_tensors(weights, "model", path)
    for side in ("encoder", "decoder"):
        embedding = weights.get(f"{side}.embed_tokens.weight")
        size = getattr(settings, f"{side}_embed_dim", None)
        if embedding is not None and size is not None and embedding.shape[1:] != (size,):
            raise UserError(
                f"{path}: its weights are not those of its settings ({side}_embed_dim={size}, but the embeddings have "
                f"the shape {tuple(embedding.shape)}); use a checkpoint of fairseq-train"
            )
        layers = {name.split(".")[2] for name in weights if name.startswith(f"{side}.layers.")}
        number = getattr(settings, f"{side}_layers", None)
        if not getattr(settings, f"{side}_layers_to_keep", None) and layers and number not in (None, len(layers)):
            raise UserError(
                f"{path}: its weights are not those of its settings ({side}_layers={number}, but there are weights of "
                f"{len(layers)} layers); use a checkpoint of fairseq-train"
            )


def check_tensors(tensors: Any, entry: str, path: Path | str) -> None:
    """Raise UserError unless `tensors` maps names to ordinary tensors that are as large as their storage."""
    if not isinstance(tensors, Mapping):
        raise UserError(
            f"{path}: expected tensors by name in '{entry}', found {describe_value(tensors)}; use a checkpoint of "
            "fairseq-train"
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise UserError(
                f"{path}: expected names in '{entry}', found {describe_value(name)}; use a checkpoint of fairseq-train"
            )
        if problem := _find_problem(tensor):
            raise UserError(
                f"{path}: expected an ordinary tensor in '{entry}' at {describe_value(name)}, found {problem}; use a "
                "checkpoint of fairseq-train"
            )


def _find_problem(tensor: Any) -> str:
    """Say what kind of value or tensor fairseq would fail on; "" for ordinary tensors."""
    if not isinstance(tensor, Tensor):
        return describe_value(tensor)
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        return "a sparse, nested or quantized one"
    if tensor.device.type != "cpu":
        return f"one on the device {tensor.device.type}"
    if tensor.is_complex():
        return "complex numbers"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"one of shape {tuple(tensor.shape)} that overlaps itself"
    return ""
