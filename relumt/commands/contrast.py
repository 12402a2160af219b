"""Contrastive accuracy: how often a model finds the right translation of a sentence more probable than wrong ones.

A model that was trained with --document-length reads the examples in their documents, cut as it was trained; any other
reads each sentence alone.
"""

import argparse
import json
from pathlib import Path

from relumt.console import quiet_fairseq
from relumt.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, on what."""
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint_*.pt, or a trained run's folder")
    parser.add_argument("--data", type=Path, help="data-bin with documents (default: the one of the run)")
    parser.add_argument("--examples", type=Path, required=True, help="test.contrast.jsonl, as relumt synth writes it")
    parser.add_argument("--subset", default="test", help="that the examples are of (default: test)")
    parser.add_argument("--batch-size", type=int, default=64, help="variants at a time (default: 64)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")


def run(arguments: argparse.Namespace) -> None:
    """Print the accuracy, and what one gets without looking beyond the sentence, as JSON."""
    quiet_fairseq()
    from relumt.analysis.contrast import Contrast, majority_rate
    from relumt.analysis.loaded_model import open_given

    if arguments.batch_size < 1:
        raise UserError(f"--batch-size must be positive, not {arguments.batch_size}")
    opened, data = open_given(arguments.checkpoint, arguments.data, arguments.cpu)
    contrast = Contrast(opened, data, arguments.subset, arguments.examples)
    result = {
        "checkpoint": str(opened.path),
        "document_length": getattr(opened.task.cfg, "document_length", 0),
        "examples": len(contrast.examples),
        "majority_rate": majority_rate(contrast.examples),
        "accuracy": contrast.accuracy(arguments.batch_size),
    }
    print(json.dumps(result, indent=2))
