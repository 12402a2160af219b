"""Decoding speed by length of the source ([RL] Fig. 2): beam search of trained models, in turn, in one process.

    python benchmarks/decoding.py DATA-BIN RUN-OR-CHECKPOINT…

The sentences of a test set are put into ten equal groups by their length. Every model translates a group's sample, one
after the other, several times in changing order; reported is the median of the first model's time over each model's, of
each group, with a 95 % interval from 10,000 bootstrap samples. Runs on a GPU where there is one.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from measure import interval, seconds

from relumt.console import quiet_fairseq
from relumt.errors import UserError, one_line_errors

GROUPS = 10


def groups_by_length(lengths: list[int], sample: int) -> list[list[int]]:
    """Numbers of up to `sample` sentences of each of ten equal groups, from the shortest to the longest."""
    order = np.argsort(lengths, kind="stable")
    return [group[np.linspace(0, len(group) - 1, min(sample, len(group))).astype(int)].tolist()
            for group in np.array_split(order, GROUPS)]  # fmt: skip


def translator(opened, beam: int, lenpen: float, batch_size: int):
    """A function that translates the sentences of the loaded subset with these numbers."""
    from fairseq.dataclass.configs import GenerationConfig

    generator = opened.task.build_generator([opened.model], GenerationConfig(beam=beam, lenpen=lenpen))
    dataset = opened.task.dataset("test")

    def translate(numbers: list[int]) -> None:
        for start in range(0, len(numbers), batch_size):
            batch = dataset.collater([dataset[number] for number in numbers[start : start + batch_size]])
            opened.task.inference_step(generator, [opened.model], opened.on_device(batch))

    return translate


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_bin", type=Path)
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument("--beam", type=int, default=4, help="[RL]'s (default: 4)")
    parser.add_argument("--lenpen", type=float, default=0.6, help="[RL]'s (default: 0.6)")
    parser.add_argument("--batch-size", type=int, default=1, help="sentences at a time, as [RL] Table 2 (default: 1)")
    parser.add_argument("--sample", type=int, default=8, help="sentences of a group (default: 8)")
    parser.add_argument("--repeats", type=int, default=5, help="(default: 5)")
    args = parser.parse_args()
    quiet_fairseq()
    from relumt.analysis.opened import open_given

    if len(args.checkpoints) < 2:
        raise UserError("name two checkpoints or more; the first is what the others are compared with")
    found = {str(given): open_given(given, args.data_bin, cpu=False)[0] for given in args.checkpoints}
    for opened in found.values():
        opened.load("test")
        opened.model.make_generation_fast_()
    baseline = next(iter(found))
    dataset = found[baseline].task.dataset("test")
    groups = groups_by_length(dataset.src_sizes.tolist(), args.sample)
    translators = {name: translator(of, args.beam, args.lenpen, args.batch_size) for name, of in found.items()}
    print("| source tokens | " + " | ".join(translators) + " |")
    print("|---|" + "---|" * len(translators))
    for group in groups:
        times: dict[str, list[float]] = {name: [] for name in translators}
        for repeat in range(args.repeats + 1):
            for name in list(translators)[:: 1 if repeat % 2 else -1]:
                taken = seconds(lambda name=name, group=group: translators[name](group))
                if repeat:  # the first warms up
                    times[name].append(taken)
        cells = []
        for measured in times.values():
            ratios = [b / a for a, b in zip(measured, times[baseline], strict=True)]
            low, high = interval(ratios)
            cells.append(f"{statistics.median(ratios):.2f} ({low:.2f}–{high:.2f})")
        sizes = dataset.src_sizes[group]
        print(f"| {sizes.min()}–{sizes.max()} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    with one_line_errors():
        main()
