"""Measure how often a model predicts the next token of the references, and with how much confidence.

    python benchmarks/calibration.py RUN… --subset valid

The decoder reads the references. Printed are means over all target tokens, end-of-sentence symbols included:

    bits per token   cross-entropy without label smoothing
    accuracy         share of the tokens that the model finds the most probable
    confidence       probability of the most probable token
    error            expected calibration error (Guo et al. 2017, Eq. 3): |accuracy − confidence| in 15 equal intervals
                     of confidence, weighted by their numbers of tokens

RUN: the folder of a run, whose last evaluated checkpoint is read, or a checkpoint with --data. Uses a GPU if there is
one.
"""

import argparse
import math
from pathlib import Path

import torch
from timing import print_origin
from torch import Tensor

from relumt.arguments import ArgumentParser
from relumt.errors import exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import

MAX_TOKENS = 4096
INTERVALS = 15


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """Return the expected calibration error of N predictions.

    Args:
        confidence: probabilities of the predictions, [N], in [0, 1].
        correct: 1 where the prediction is right and 0 elsewhere, [N].
    """
    # The intervals are (0, 1/15], (1/15, 2/15], …
    interval = (confidence * INTERVALS).ceil().long().clamp(min=1) - 1
    surplus = torch.zeros(INTERVALS, dtype=torch.float64).index_add_(0, interval, confidence - correct)
    return surplus.abs().sum().item() / len(confidence)


def measure(run: Path, data: Path | None, subset: str) -> None:
    """Print the row of a run."""
    from relumt.runs.inference.loaded_model import load_model

    loaded, _ = load_model(run, data, cpu=False)
    loaded.load_subset(subset)
    found = []
    for batch in loaded.batches(subset, MAX_TOKENS):
        with torch.no_grad():
            log_p = loaded.model.get_normalized_probs(loaded.model(**batch["net_input"]), log_probs=True)
        target = batch["target"][..., None]
        best, prediction = log_p.max(-1, keepdim=True)
        columns = torch.cat((log_p.gather(-1, target), best, prediction.eq(target)), -1)  # [B, T, 3]
        found.append(columns[target.ne(loaded.task.target_dictionary.pad()).squeeze(-1)].double().cpu())
    log_p_target, log_p_best, correct = torch.cat(found).unbind(-1)
    confidence = log_p_best.exp().clamp(max=1)
    bits = -log_p_target.mean().item() / math.log(2)
    shares = (correct.mean().item(), confidence.mean().item(), calibration_error(confidence, correct))
    cells = (str(run), str(len(correct)), f"{bits:.3f}", *(f"{100 * share:.2f}%" for share in shares))
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure all runs, and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--data", type=Path, help="data-bin (default: the one that the run was trained on)")
    parser.add_argument("--subset", default="valid", help="(default: %(default)s)")
    args = parser.parse_args()
    prepare_fairseq_import()
    print("| run | tokens | bits per token | accuracy | confidence | error |")
    print("|---|---|---|---|---|---|")
    for run in args.runs:
        measure(run, args.data, args.subset)
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
