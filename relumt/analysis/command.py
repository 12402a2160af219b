"""Measure what trained models do while they read a test set's references, and write it to DIR/analysis.json.

A model is a checkpoint or the folder of a finished run, which stands for its best checkpoint.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from relumt.errors import UserError
from relumt.files import sha256, write_whole

ANALYSIS = "analysis.json"
SCHEMA = 1
"""Raised when what analysis.json holds changes its meaning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to look at, on what, and where to."""
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoint_*.pt, or a run")
    parser.add_argument("--data", type=Path, help="data-bin of the models' vocabulary (default: the one of the runs)")
    parser.add_argument("--subset", default="test", help="which part of it (default: test)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for what is measured")
    parser.add_argument("--max-tokens", type=int, default=4096, help="in a batch (default: 4096)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write."""
    from relumt.analysis.opened import quiet_fairseq

    if arguments.max_tokens < 1:
        raise UserError(f"--max-tokens must be positive, not {arguments.max_tokens}")
    if arguments.out.exists() and not arguments.out.is_dir():
        raise UserError(f"{arguments.out}: is no folder; name another --out")
    quiet_fairseq()
    analyses = [analyse(path, arguments) for path in arguments.checkpoints]
    result = {"schema": SCHEMA, "subset": arguments.subset, "checkpoints": analyses}
    write_whole(arguments.out / ANALYSIS, json.dumps(result, indent=2) + "\n")
    print(f"relumt: {arguments.out / ANALYSIS}", file=sys.stderr)
    if any(analysis["activations"] for analysis in analyses):
        from relumt.analysis.plots import plot_activations

        plot_activations(analyses, arguments.out)


def analyse(given: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything about one checkpoint; raises UserError if there is none, or nothing to look at it on."""
    import torch

    from relumt.analysis.feedforward import FeedForwardCollector, learnt_activations
    from relumt.analysis.opened import data_of_run, find_checkpoint, open_checkpoint
    from relumt.runs.environment import versions

    path = find_checkpoint(given)
    data = arguments.data or data_of_run(given)
    opened = open_checkpoint(path, data, cuda=torch.cuda.is_available() and not arguments.cpu)
    pairs = opened.load(arguments.subset)
    collector = FeedForwardCollector(opened.model, opened.task.target_dictionary.pad())
    seen = 0
    console = Console(file=sys.stderr)
    batches = opened.batches(arguments.subset, arguments.max_tokens)
    for sample in track(batches, str(path), console=console, disable=not console.is_terminal):
        with collector.listening(sample):
            opened.decode(sample)
        seen += sample["nsentences"]
    if not seen:
        raise UserError(f"{data}: no pair of '{arguments.subset}' fits {path}'s positions")
    return {
        "path": str(path),
        "data": str(data),
        "sha256": sha256(path),
        "versions": versions(),
        "pairs": seen,
        "pairs_too_long": pairs - seen,
        "feedforward": collector.result(),
        "activations": learnt_activations(opened.model),
    }
