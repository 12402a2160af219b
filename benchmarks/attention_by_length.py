"""Measure how concentrated attention is in short and in long sentences.

    python benchmarks/attention_by_length.py RUN… --subset valid --groups 5

The sentence pairs are split by source length into groups of equal size, and the decoder reads the references. Printed
is, for each site, the largest weight of a row divided by the sum of its weights: the mean over the rows that are not
null, heads and layers. A RUN is the folder of a run, or a checkpoint with --data. Uses a GPU if there is one.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from timing import print_origin
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.errors import UserError, exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import

SITES = ("encoder", "decoder", "cross")
BATCH_SIZE = 50


def largest_shares(weights: Tensor) -> Tensor:
    """Return the largest weight of each row of weights [R, S] divided by their sum, without null rows: [R']."""
    sums = weights.sum(-1)
    return (weights.amax(-1) / sums)[sums > 0]


def shares_by_site(loaded: Any, batch: dict[str, Any]) -> dict[str, list[float]]:
    """Return site → the mean of `largest_shares` in each of its layers.

    Raises:
        UserError: an attention has no weights, or negative ones.
    """
    from relumt.modules import MechanismAttention
    from relumt.modules.hooks import attention_hook

    padding = loaded.task.source_dictionary.pad()
    queries = {"encoder": batch["net_input"]["src_tokens"], "decoder": batch["net_input"]["prev_output_tokens"]}
    queries["cross"] = queries["decoder"]
    shares: dict[str, list[float]] = defaultdict(list)

    def collect(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if result.weights is None or attention.mechanism.has_negative_weights:
            raise UserError(f"{loaded.path}: expected weights that are not negative, {name} has none")
        rows = result.weights.transpose(1, 2)[queries[attention.site].ne(padding)]  # [B, H, T, S] -> [R, H, S]
        shares[attention.site].append(largest_shares(rows.flatten(0, 1)).double().mean().item())

    with torch.no_grad(), attention_hook(loaded.model, collect, Need.WEIGHTS):
        loaded.model(**batch["net_input"])
    return shares


def measure(run: Path, data: Path | None, subset: str, groups: int) -> None:
    """Print a row for each group of sentences."""
    from relumt.inference.loaded_model import load_model

    loaded, _ = load_model(run, data, cpu=False)
    loaded.load_subset(subset)
    dataset = loaded.task.dataset(subset)
    for indices in np.array_split(np.argsort(dataset.src_sizes, kind="stable"), groups):
        found: dict[str, list[float]] = defaultdict(list)
        for start in range(0, len(indices), BATCH_SIZE):
            batch = dataset.collater([dataset[index] for index in indices[start : start + BATCH_SIZE]])
            for site, shares in shares_by_site(loaded, loaded.to_device(batch)).items():
                found[site] += shares
        lengths = dataset.src_sizes[indices]
        cells = [f"{lengths.min()}–{lengths.max()}", *(f"{mean(found[site]):.3f}" for site in SITES)]
        print(f"| {run} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure all runs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--data", type=Path, help="data-bin (default: the one that the run was trained on)")
    parser.add_argument("--subset", default="valid", help="(default: %(default)s)")
    parser.add_argument("--groups", type=int, default=5, help="(default: %(default)s)")
    args = parser.parse_args()
    prepare_fairseq_import()
    print("| run | source tokens | " + " | ".join(SITES) + " |")
    print("|---|---|" + "---|" * len(SITES))
    for run in args.runs:
        measure(run, args.data, args.subset, args.groups)
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
