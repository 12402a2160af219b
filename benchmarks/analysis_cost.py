"""Measure the time and peak memory of `relumt analyze` relative to a validation pass.

    python benchmarks/analysis_cost.py RUN-OR-CHECKPOINT DATA-BIN [--repeats 6] [--units subwords|words]

The analysis is forced decoding of the test set with all collectors, and of the test set with shuffled targets with null
rows counted. It alternates in one process with the model's forward pass of validation. Reported is the median of the
paired ratios with a 95% interval, from six repeats on.
"""

import argparse
from pathlib import Path

import torch
from timing import peak_bytes, print_origin, seconds

from relumt.arguments import ArgumentParser, positive_integer
from relumt.errors import exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.papers.speeds import MIN_REPEATS, format_ratio, median_ratio


def main() -> None:
    """Measure, and print the two results."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data_bin", type=Path)
    parser.add_argument("--repeats", type=positive_integer, default=MIN_REPEATS, help="(default: %(default)s)")
    parser.add_argument("--max-tokens", type=positive_integer, default=4096, help="tokens per batch (default: 4096)")
    parser.add_argument("--units", choices=["subwords", "words"], default="subwords", help="(default: subwords)")
    args = parser.parse_args()
    prepare_fairseq_import()
    from relumt.analysis.attention_collector import AttentionCollector
    from relumt.analysis.attention_maps import MapCollector
    from relumt.analysis.ffn_collector import FeedForwardCollector
    from relumt.analysis.measure import collect
    from relumt.analysis.units import BatchReader
    from relumt.runs.data_bin import find_subwords
    from relumt.runs.inference.loaded_model import load_model

    loaded, _ = load_model(args.checkpoint, args.data_bin, cpu=False)
    loaded.load_subset("test")
    pad = loaded.task.target_dictionary.pad()
    batches = {
        subset: list(loaded.batches(subset, args.max_tokens)) for subset in ("test", loaded.shuffle_targets("test"))
    }
    (test, shuffled) = batches.values()

    def analyze() -> None:
        model, task = loaded.model, loaded.task
        reader = BatchReader(task, find_subwords(args.data_bin, task.cfg.target_lang), args.units)
        attention, maps = AttentionCollector(model, reader), MapCollector(model, task, 50)
        collect(loaded, test, [FeedForwardCollector(model, pad), attention, maps])
        collect(loaded, shuffled, [AttentionCollector(model, reader, null_rates_only=True)])

    @torch.no_grad()
    def validate() -> None:
        for sample in test:
            loaded.model(**sample["net_input"])

    analyze()  # warms up
    ratios = []
    for repeat in range(args.repeats):
        passes = [analyze, validate]
        times = {work: seconds(work) for work in (passes if repeat % 2 else reversed(passes))}
        ratios.append(times[analyze] / times[validate])
    extra = peak_bytes(analyze) - peak_bytes(validate)
    print(f"time: {format_ratio(median_ratio(ratios))} of a validation pass")
    print(f"memory: {extra / 2**20:.0f} MiB more at the peak")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
