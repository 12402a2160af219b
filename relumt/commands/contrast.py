"""Measure contrastive accuracy: how often a model prefers the reference translation of a sentence to wrong variants.

Examples are sentences of a test set, or have contexts of their own (relumt import-contrast). A model trained with
--document-length reads the sentences in their context; any other model reads each sentence alone.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from relumt.arguments import positive_integer
from relumt.fairseq_version import prepare_fairseq_import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    model_help = "a checkpoint, or the folder of a trained run for its scored one"
    examples_help = "contrastive examples: test.contrast.jsonl of relumt synth, or what relumt import-contrast wrote"
    add("--checkpoint", type=Path, required=True, help=model_help)
    add("--data", type=Path, help="data-bin with document boundaries (default: that of the run)")
    add("--examples", type=Path, required=True, help=examples_help)
    add("--subset", default="test", help="subset with the sentences of a test set (default: test)")
    add("--batch-size", type=positive_integer, default=64, help="translations in a batch (default: 64)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Print as JSON the accuracy and that of the majority baseline, which ignores the context."""
    prepare_fairseq_import()
    from relumt.analysis import contrast
    from relumt.corpora.contrastive import has_contexts, read_examples_in_context
    from relumt.runs.inference.loaded_model import load_model

    examples_path, batch_size = arguments.examples, arguments.batch_size
    are_in_context = has_contexts(examples_path)
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    document_length = getattr(loaded.task.cfg, "document_length", 0)
    result: dict[str, object] = {"checkpoint": str(loaded.path), "document_length": document_length}
    if are_in_context:
        examples = read_examples_in_context(examples_path)
        candidates = contrast.ContextCandidates(loaded, data, examples)
        decisions = contrast.decide(loaded, candidates, batch_size)
        result |= contrast.summarize(examples, decisions)
        result |= {"mean_context_sentences": fmean(candidates.context_lengths)}
        result |= contrast.accuracies(examples, decisions)
    else:
        sentences = contrast.read_examples(examples_path)
        own = contrast.sentence_candidates(loaded, data, arguments.subset, sentences)
        result |= contrast.summarize(sentences, contrast.decide(loaded, own, batch_size))
    print(json.dumps(result, indent=2, ensure_ascii=False))
