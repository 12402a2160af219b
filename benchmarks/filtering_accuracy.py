"""Measure how well the null rate separates translations from noise, compared with cross-entropy ([RL] §5.2).

    python benchmarks/filtering_accuracy.py CHECKPOINT DATA-BIN [--subset test] [--noise 0.1]

Every pair of the subset is scored twice: with its own target, and with that of another pair. AUC is the probability
that a wrong pair gets a higher score than a right one. A share of the pairs (--noise) is then replaced by wrong ones;
the precision of detecting these is reported at recalls of 50, 80, 90 and 95%.
"""

import argparse
import json
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_auc_score

from relumt.arguments import ArgumentParser, share, whole_number
from relumt.errors import UserError, exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.runs.environment import describe_revision

MEASURES = ("null_rate", "cross_entropy")
RECALLS = (0.5, 0.8, 0.9, 0.95)


def main() -> None:
    """Measure, and print JSON."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--subset", default="test")
    parser.add_argument("--noise", type=share, default=0.1, help="share of wrong pairs (default: 0.1)")
    parser.add_argument("--seed", type=whole_number, default=1)
    arguments = parser.parse_args()
    prepare_fairseq_import()
    print(json.dumps(measure(arguments), indent=2))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the AUC and precisions of both scores."""
    from relumt.analysis.filter import score_pairs
    from relumt.runs.inference.loaded_model import load_model

    loaded, _ = load_model(arguments.checkpoint, arguments.data, cpu=False)
    loaded.load_subset(arguments.subset)
    scores_by_subset = []
    for subset in (arguments.subset, loaded.shuffle_targets(arguments.subset)):
        dataset = loaded.task.dataset(subset)
        pairs = [(pair["source"], pair["target"]) for pair in map(dataset.__getitem__, range(len(dataset)))]
        scores_by_subset.append(score_pairs(loaded, pairs, 4096))
    both = zip(*scores_by_subset, strict=True)
    measured = [pair for pair in both if not any(isnan(x) for score in pair for x in score)]
    if not measured:
        raise UserError(
            f"{arguments.checkpoint}: no pair has both {' and '.join(MEASURES)}; give a model with row stats"
        )
    right, wrong = zip(*measured, strict=True)
    noisy = np.random.default_rng(arguments.seed).random(len(right)) < arguments.noise
    result: dict[str, Any] = {"revision": describe_revision(), "pairs": len(right), "noise": arguments.noise}
    result["wrong pairs"] = int(noisy.sum())
    for name in MEASURES:
        own, swapped = (np.array([getattr(score, name) for score in scores]) for scores in (right, wrong))
        precision, recall, _ = precision_recall_curve(noisy, np.where(noisy, swapped, own))
        result[name] = {
            "AUC": roc_auc_score([0] * len(own) + [1] * len(swapped), np.concatenate([own, swapped])),
            "precision at recall": {str(r): float(precision[recall >= r].max()) for r in RECALLS},
        }
    return result


if __name__ == "__main__":
    with exit_on_user_error():
        main()
