"""Average the parameters of several checkpoints of one training run into one checkpoint.

The result translates like any checkpoint, but training cannot resume from it.
"""

import argparse
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoints and --out."""
    parser.add_argument(
        "checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoint_*.pt of one training run"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="checkpoint to write")


def run(arguments: argparse.Namespace) -> None:
    """Write the average of the checkpoints."""
    resolved = [path.resolve() for path in arguments.checkpoints]
    if arguments.out.resolve() in resolved:
        raise UserError(f"{arguments.out}: is one of the checkpoints to average; choose another --out")
    if arguments.out.exists():
        raise UserError(f"{arguments.out}: exists; choose another --out, or remove the file")
    if len(set(resolved)) < len(resolved):
        raise UserError("the same checkpoint is given twice; give each checkpoint once")
    from relumt.plugin.checkpoints.averaging import write_average  # imports PyTorch, which takes seconds

    write_average(arguments.checkpoints, arguments.out)
    print_status(f"{arguments.out}: the average of {len(resolved)} checkpoints")
