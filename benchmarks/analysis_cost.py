"""What `relumt analyze` costs beside one validation pass: time, and memory that tensors take at the most.

    python benchmarks/analysis_cost.py RUN-OR-CHECKPOINT DATA-BIN [--repeats 5]

Forced decoding of the test set with every collector listening, and that of the shuffled one with null rows counted, in
turn with the model's forward pass of validation, in one process. Reported is the median of the paired ratios with a
95 % interval.
"""

import argparse
import statistics
from pathlib import Path

import torch
from timing import median_interval, peak_bytes, seconds

from relumt.console import quiet_fairseq
from relumt.errors import exit_on_user_error


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data_bin", type=Path)
    parser.add_argument("--repeats", type=int, default=5, help="(default: 5)")
    parser.add_argument("--max-tokens", type=int, default=4096, help="in a batch (default: 4096)")
    args = parser.parse_args()
    quiet_fairseq()
    from relumt.analysis.attention_collector import AttentionCollector, NullRateCollector
    from relumt.analysis.attention_maps import MapCollector
    from relumt.analysis.collector import collect
    from relumt.analysis.ffn_collector import FeedForwardCollector
    from relumt.analysis.loaded_model import load_model

    opened, _ = load_model(args.checkpoint, args.data_bin, cpu=False)
    opened.load_subset("test")
    pad = opened.task.target_dictionary.pad()
    batches = {
        subset: list(opened.batches(subset, args.max_tokens)) for subset in ("test", opened.shuffle_targets("test"))
    }
    (test, shuffled) = batches.values()

    def analyze() -> None:
        model, task = opened.model, opened.task
        collectors = [FeedForwardCollector(model, pad), AttentionCollector(model, pad), MapCollector(model, task, 50)]
        collect(opened, test, collectors)
        collect(opened, shuffled, [NullRateCollector(model, pad)])

    @torch.no_grad()
    def validate() -> None:
        for sample in test:
            opened.model(**sample["net_input"])

    analyze()  # warms up
    ratios = []
    for repeat in range(args.repeats):
        works = [analyze, validate]
        times = {work is analyze: seconds(work) for work in (works if repeat % 2 else reversed(works))}
        ratios.append(times[True] / times[False])
    low, high = median_interval(ratios)
    more = peak_bytes(analyze) - peak_bytes(validate)
    print(f"time: {statistics.median(ratios):.2f} ({low:.2f}–{high:.2f}) of a validation pass")
    print(f"memory: {more / 2**20:.0f} MiB more at the peak")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
