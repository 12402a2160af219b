"""Measure contrastive accuracy: how often a model prefers the reference translation of a sentence to wrong variants.

Examples are sentences of a test set, or have contexts of their own (relumt import-contrast). A model trained with
--document-length reads the sentences in their context; any other model reads each sentence alone.
"""

import argparse
import json
from collections.abc import Sequence
from statistics import fmean

from relumt.arguments import positive_integer, valid_path
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import describe_kind


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
        "--examples",
        type=valid_path,
        required=True,
        help="contrastive examples: test.contrast.jsonl of relumt synth, or what relumt import-contrast wrote",
    )
    parser.add_argument("--subset", default="test", help="subset with the sentences of a test set (default: test)")
    parser.add_argument("--batch-size", type=positive_integer, default=64, help="translations in a batch (default: 64)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Print as JSON the accuracy and that of the majority baseline, which ignores the context."""
    prepare_fairseq_import()
    from relumt.analysis.context_contrast import ContextTest, accuracies
    from relumt.analysis.contrast import ContrastiveTest, majority_accuracy
    from relumt.corpora.contrastive import has_contexts, read_examples_in_context
    from relumt.inference.loaded_model import load_model

    if arguments.examples.exists() and not arguments.examples.is_file():
        kind = describe_kind(arguments.examples)
        raise UserError(f"{arguments.examples}: expected a file, which is read twice, found {kind}; write it to a file")
    are_in_context = has_contexts(arguments.examples)
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    result: dict[str, object] = {
        "checkpoint": str(loaded.path),
        "document_length": getattr(loaded.task.cfg, "document_length", 0),
    }
    if are_in_context:
        examples = read_examples_in_context(arguments.examples)
        test = ContextTest(loaded, data, examples)
        decisions = test.decisions(arguments.batch_size)
        details = {"mean_context_sentences": fmean(test.context_lengths)} | accuracies(examples, decisions)
        result |= summarize(decisions, majority_accuracy(examples)) | details
    else:
        contrast = ContrastiveTest(loaded, data, arguments.subset, arguments.examples)
        result |= summarize(contrast.decisions(arguments.batch_size), majority_accuracy(contrast.examples))
    print(json.dumps(result, indent=2, ensure_ascii=False))


def summarize(decisions: Sequence[bool], majority_accuracy: float) -> dict[str, object]:
    """Return the number of examples and the accuracies over all of them."""
    return {"examples": len(decisions), "majority_accuracy": majority_accuracy, "accuracy": fmean(decisions)}
