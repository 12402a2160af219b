"""Measure the time and memory of data preparation: from texts to a data-bin, as for a corpus of WMT.

    python benchmarks/preparation.py PREFIX --lines 250000 500000 1000000 --extrapolate 4500000

PREFIX.de and PREFIX.en are training texts. Their first lines are prepared, and the first 3,000 also serve as
validation and test texts. Everything that `relumt corpus wmt14_en_de` does with downloaded files is included:
checksums, reading, punctuation, tokens, cleaning, joint BPE with 32,000 merges, dictionaries and binary files. stderr
has the time of each step. Reported are the wall time, the CPU time, and the peak resident memory of the largest process
and of all together, sampled ten times a second. The extrapolation continues the line through the last two sizes.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from relumt.arguments import ArgumentParser, positive_integer
from relumt.corpora.bitext import side_paths
from relumt.corpora.build import prepare_corpus
from relumt.corpora.published_corpora import Corpus, copy_normalized
from relumt.corpora.published_files import ParallelText, PublishedText, Source
from relumt.errors import UserError, exit_on_user_error
from relumt.files import StagingArea

MERGES = 32_000
HELD_OUT_LINES = 3000
SAMPLES_PER_SECOND = 10


class LocalTexts(Corpus):
    """The texts train.LANGUAGE and held_out.LANGUAGE in the folder of raw files, prepared as a corpus of WMT is."""

    bpe_merges = MERGES

    def __init__(self, languages: tuple[str, str]) -> None:
        self.languages = languages

    def text(self, name: str) -> ParallelText:
        """Return both sides of a text."""
        source, target = (PublishedText(Source(f"{name}.{language}")) for language in self.languages)
        return source, target

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [self.text("train"), self.text("held_out")]

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        source, target = (list(text.lines(raw)) for text in self.text("held_out"))
        for split in ("valid", "test"):
            self.write_held_out(split, (source, target), stage.result)
        combined = side_paths(stage.scratch, "combined", self.languages)
        copy_normalized(self.text("train"), raw, combined)
        self.preprocess_and_clean(combined, side_paths(stage.result, "train", self.languages), stage)


@dataclass(frozen=True)
class Measurement:
    """What preparing a number of lines took.

    Attributes:
        lines: number of training pairs.
        seconds: wall time.
        cpu_seconds: CPU time of all processes.
        largest_bytes: peak resident memory of the largest process.
        total_bytes: peak of the sum over the processes, in which shared pages count once per process.
    """

    lines: int
    seconds: float
    cpu_seconds: float
    largest_bytes: int
    total_bytes: int


def resident_bytes(root: int) -> Iterator[int]:
    """Yield the resident memory of a process and of each of its descendants."""
    pages = os.sysconf("SC_PAGE_SIZE")
    try:
        yield int(Path(f"/proc/{root}/statm").read_text(encoding="ascii").split()[1]) * pages
        for children in Path(f"/proc/{root}/task").glob("*/children"):
            for child in children.read_text(encoding="ascii").split():
                yield from resident_bytes(int(child))
    except (FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
        return


def measure(prefix: str, languages: tuple[str, str], lines: int, folder: Path) -> Measurement:
    """Prepare the first `lines` lines in a process of its own; `folder` is empty."""
    raw = folder / "raw"
    raw.mkdir()
    for language in languages:
        for name, count in (("train", lines), ("held_out", HELD_OUT_LINES)):
            copy_first_lines(Path(f"{prefix}.{language}"), raw / f"{name}.{language}", count)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    arguments = (LocalTexts(languages), raw, folder / "data-bin", "subword-nmt", None, False)
    process = multiprocessing.get_context("spawn").Process(target=prepare_corpus, args=arguments)
    process.start()
    assert process.pid is not None, "the process was started"
    largest = total = 0
    while process.is_alive():
        sizes = list(resident_bytes(process.pid))
        largest, total = max(largest, *sizes, 0), max(total, sum(sizes))
        process.join(1 / SAMPLES_PER_SECOND)
    seconds = time.monotonic() - started
    if process.exitcode:
        raise SystemExit(process.exitcode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measurement(lines, seconds, cpu_seconds, largest, total)


def copy_first_lines(source: Path, destination: Path, count: int) -> None:
    """Copy the first `count` lines of a file; raises UserError if it has fewer."""
    with source.open("rb") as lines, destination.open("wb") as output:
        copied = sum(1 for line in islice(lines, count) if output.write(line))
    if copied < count:
        raise UserError(f"{source} has fewer than {count} lines; give a longer text or smaller --lines")


def extrapolate(first: Measurement, second: Measurement, lines: int) -> float:
    """Return the seconds for a number of lines, on the line through two measurements."""
    slope = (second.seconds - first.seconds) / (second.lines - first.lines)
    return second.seconds + slope * (lines - second.lines)


def main() -> None:
    """Run the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", metavar="PREFIX", help="the training texts are PREFIX.SRC and PREFIX.TGT")
    parser.add_argument("--src", default="de", help="source language (default: %(default)s)")
    parser.add_argument("--tgt", default="en", help="target language (default: %(default)s)")
    parser.add_argument("--lines", type=positive_integer, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument(
        "--extrapolate", type=positive_integer, default=4_500_000, metavar="LINES", help="(default: %(default)s)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the data-bins, as DIR/LINES; DIR must not exist")
    options = parser.parse_args()
    print("| lines | wall time (s) | CPU time (s) | largest process (GB) | all processes (GB) |\n|---|---|---|---|---|")
    measured = []
    for lines in sorted(options.lines):
        with tempfile.TemporaryDirectory() as scratch:
            result = measure(options.prefix, (options.src, options.tgt), lines, Path(scratch))
            if options.keep:
                shutil.copytree(scratch, options.keep / str(lines))
        measured.append(result)
        sizes = f"{result.largest_bytes / 1e9:.2f} | {result.total_bytes / 1e9:.2f}"
        print(f"| {result.lines:,} | {result.seconds:.0f} | {result.cpu_seconds:.0f} | {sizes} |", flush=True)
    if len(measured) > 1:
        seconds = extrapolate(measured[-2], measured[-1], options.extrapolate)
        print(f"\n{options.extrapolate:,} lines by extrapolation: {seconds / 60:.1f} minutes")
    from timing import print_origin  # torch's memory is not part of the measurement

    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
