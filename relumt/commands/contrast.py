"""Measure contrastive accuracy: how often a model prefers the reference translation of a sentence to wrong variants.

A model trained with --document-length reads the sentences in their documents; any other reads each sentence alone.
"""

import argparse
import json

from relumt.arguments import positive_integer, valid_path
from relumt.fairseq_version import prepare_fairseq_import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--checkpoint",
        type=valid_path,
        required=True,
        help="a checkpoint, or the folder of a trained run for its scored one",
    )
    parser.add_argument("--data", type=valid_path, help="data-bin with document boundaries (default: that of the run)")
    parser.add_argument(
        "--examples", type=valid_path, required=True, help="contrastive examples: test.contrast.jsonl of relumt synth"
    )
    parser.add_argument("--subset", default="test", help="subset that the examples belong to (default: test)")
    parser.add_argument("--batch-size", type=positive_integer, default=64, help="translations in a batch (default: 64)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Print as JSON the accuracy and that of the majority baseline, which ignores the context."""
    prepare_fairseq_import()
    from relumt.analysis.contrast import ContrastiveTest, majority_accuracy
    from relumt.inference.loaded_model import load_model

    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    contrast = ContrastiveTest(loaded, data, arguments.subset, arguments.examples)
    result = {
        "checkpoint": str(loaded.path),
        "document_length": getattr(loaded.task.cfg, "document_length", 0),
        "examples": len(contrast.examples),
        "majority_accuracy": majority_accuracy(contrast.examples),
        "accuracy": contrast.accuracy(arguments.batch_size),
    }
    print(json.dumps(result, indent=2))
