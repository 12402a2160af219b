"""Average the parameters of several checkpoints of one training into one checkpoint, as [RL] §5 does with the last 5.

Every parameter is averaged, a mechanism's and an activation's too. The new checkpoint translates like any other;
training cannot go on from it.
"""

import argparse
import re
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relumt.atomic_output import atomic_file
from relumt.console import print_status
from relumt.errors import UserError

NUMBERED = re.compile(r"checkpoint_?(\d+)(?:_(\d+))?\.pt")

OF_KIND = ("arch", "attention", "feedforward", "relu_", "inhibitor_", "memory_", "gated_", "vocabulary_fingerprint")
"""What the names of settings begin with that models of one training have in common beside their parameters' shapes."""

LEFT_OUT = ("last_optimizer_state",)
"""What has no average; the rest of a checkpoint says what fairseq has to know to load it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of what, and where to."""
    parser.add_argument(
        "checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoint_*.pt of one training"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the checkpoint to write")


def run(arguments: argparse.Namespace) -> None:
    """Write the average."""
    if arguments.out.resolve() in {path.resolve() for path in arguments.checkpoints}:
        raise UserError(f"{arguments.out}: is one of the checkpoints to average; name another --out")
    if len({path.resolve() for path in arguments.checkpoints}) < len(arguments.checkpoints):
        raise UserError("a checkpoint is named twice; name each once")
    write_average(arguments.checkpoints, arguments.out)
    print_status(f"{arguments.out}: the mean of {len(arguments.checkpoints)} checkpoints")


def write_average(paths: Iterable[Path], out: Path) -> None:
    """Write the average of checkpoints as a whole or not at all; raises UserError as `average`."""
    import torch

    from relumt.checkpoints import load_checkpoint_safely

    averaged = average((path, load_checkpoint_safely(path)) for path in paths)
    with atomic_file(out) as unfinished:
        torch.save(averaged, unfinished)


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """The last checkpoints that a training kept, in their order.

    fairseq names them checkpoint_EPOCH_UPDATES.pt (--save-interval-updates) and checkpointEPOCH.pt.

    Raises:
        UserError: there are fewer.
    """
    named = {path: NUMBERED.fullmatch(path.name) for path in folder.glob("checkpoint*.pt")}
    numbered = {path: tuple(int(group or 0) for group in match.groups()) for path, match in named.items() if match}
    by_updates = [path for path, (_, updates) in numbered.items() if updates]
    last = sorted(by_updates or numbered, key=numbered.__getitem__)[-count:]
    if len(last) < count:
        raise UserError(
            f"{folder}: {len(last)} numbered checkpoints, not the {count} to average; train longer, or keep more with "
            "--keep-interval-updates or --keep-last-epochs"
        )
    return last


def kind_of_model(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What the checkpoint says of its architecture, mechanisms and vocabulary."""
    model = (checkpoint.get("cfg") or {}).get("model") or checkpoint.get("args") or Namespace()
    settings = vars(model) if isinstance(model, Namespace) else model
    return {name: value for name, value in settings.items() if name.startswith(OF_KIND)}


def average(checkpoints: Iterable[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """The first checkpoint with the mean of all models in its place.

    Sums are in double precision; whole numbers (counts of updates, say) are the first's.

    Raises:
        UserError: a checkpoint whose parameters are others than the first's.
    """
    checkpoints = iter(checkpoints)
    first, result = next(checkpoints)
    result = {name: value for name, value in result.items() if name not in LEFT_OUT}
    sums = {name: tensor.double() for name, tensor in result["model"].items() if tensor.is_floating_point()}
    count = 1
    for path, checkpoint in checkpoints:
        model = checkpoint["model"]
        if {n: t.shape for n, t in model.items()} != {n: t.shape for n, t in result["model"].items()}:
            raise UserError(f"{path}: has other parameters than {first}; average checkpoints of one training")
        if kind_of_model(checkpoint) != kind_of_model(result):
            raise UserError(f"{path}: is of another kind of model than {first}; average checkpoints of one training")
        for name in sums:
            sums[name] += model[name].double()
        count += 1
    means = {name: (total / count).to(result["model"][name].dtype) for name, total in sums.items()}
    return result | {"model": result["model"] | means}
