"""Measure how concentrated attention is in short and in long sentences.

    python benchmarks/attention_by_length.py RUN… --subset valid --groups 5

The sentence pairs are split by source length into groups of equal size, and the decoder reads the references. Printed
is, for each site, the largest weight of a row divided by the sum of its weights: the mean over the rows that are not
null, heads and layers. A RUN is the folder of a run, or a checkpoint with --data. Uses a GPU if there is one.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import print_origin

from relumt.arguments import ArgumentParser, positive_integer
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.metrics.attention_metrics import normalize
from relumt.errors import UserError, exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.plugin.options import SITES

BATCH_SIZE = 50


def add_batch(loaded: Any, reader: Any, batch: dict[str, Any], means: dict[str, Any]) -> None:
    """Add the largest share of each row of a batch to the running means of each attention, by its name.

    Raises:
        UserError: an attention has no weights, or negative ones.
    """
    from relumt.plugin.model.attention import MechanismAttention
    from relumt.plugin.model.hooks import attention_hook

    tokens = reader.read(batch)

    def collect(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if result.weights is None or attention.mechanism.has_negative_weights:
            raise UserError(f"{loaded.path}: expected weights that are not negative, {name} has none")
        rows = tokens[attention.site].select_rows(result.weights, mask).weights
        means[attention.site][name].add("largest share", normalize(rows).amax(-1))

    with torch.no_grad(), attention_hook(loaded.model, collect, Need.WEIGHTS):
        loaded.force_decode(batch)


def measure(run: Path, data: Path | None, subset: str, groups: int) -> None:
    """Print a row for each group of sentences."""
    from relumt.analysis.attention_collector import RunningMeans
    from relumt.analysis.record import mean_over_heads
    from relumt.analysis.units import BatchReader
    from relumt.runs.data_bin import find_subwords
    from relumt.runs.inference.loaded_model import load_model

    loaded, data_bin = load_model(run, data, cpu=False)
    loaded.load_subset(subset)
    reader = BatchReader(loaded.task, find_subwords(data_bin, loaded.task.cfg.target_lang))
    dataset = loaded.task.dataset(subset)
    for indices in np.array_split(np.argsort(dataset.src_sizes, kind="stable"), groups):
        means: dict[str, dict[str, RunningMeans]] = {site: defaultdict(RunningMeans) for site in SITES}
        for start in range(0, len(indices), BATCH_SIZE):
            batch = dataset.collater([dataset[index] for index in indices[start : start + BATCH_SIZE]])
            add_batch(loaded, reader, loaded.to_device(batch), means)
        lengths = dataset.src_sizes[indices]
        layers = ([mean_over_heads(found.heads("largest share")) for found in means[site].values()] for site in SITES)
        shares = map(mean_over_heads, layers)
        cells = [f"{lengths.min()}–{lengths.max()}", *("" if share is None else f"{share:.3f}" for share in shares)]
        print(f"| {run} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure all runs, and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--data", type=Path, help="data-bin (default: the one that the run was trained on)")
    parser.add_argument("--subset", default="valid", help="(default: %(default)s)")
    parser.add_argument("--groups", type=positive_integer, default=5, help="(default: %(default)s)")
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
