"""What a user sees of a fairseq command while it runs: its log has the rest.

A line is printed after each epoch or validation. Below it, a terminal has one line that is updated; otherwise a line is
printed now and then in long epochs. Messages of relumt, warnings and sample translations are passed on.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TextIO

from relumt.errors import duration
from relumt.runs.training_log import NOT_FINITE, PARAMETERS, STAMP, STATISTICS, finite_numbers

INTERVAL = 60.0
"""Seconds between lines in a long epoch, if stdout is no terminal."""

ALMOST_ALL = 0.999
"""From this share on, no time is left: fairseq rounds the number of epochs."""

PASSED_ON = re.compile(
    r"relumt: |\S+ \S+ \| (WARNING|ERROR) \| "
    rf"|{STAMP}fairseq_cli\.generate \| Translated "
)
"""Start of the lines of fairseq's log that a user sees."""

SAMPLE = re.compile(rf"{STAMP}(?:fairseq\.tasks\.translation|relumt\.plugin\.tasks\.\w+) \| (\w+ \w+: .{{0,300}})")
"""A sample translation, its source or its reference: `translation 1: …`, or fairseq's `example hypothesis: …`."""

ANNOYING = ("tensorboardX", "num_workers", "Disk I/O")


@dataclass
class TrainingProgress:
    """What a training has reached.

    Attributes:
        max_epoch: epochs after which it ends, 0 if it does not end by them.
        max_update: the same for updates.
        started: when it started, on the clock of `time.monotonic`.
        last: the last value of each statistic of fairseq.
        first_share: share of the training that was done when this start of fairseq logged for the first time.
        has_news: whether there was an epoch's end or a validation that no line has told yet.
    """

    max_epoch: float
    max_update: float
    started: float = field(default_factory=time.monotonic)
    last: dict[str, float] = field(default_factory=dict)
    first_share: float | None = None
    has_news: bool = False

    def read(self, kind: str, logged: dict[str, float]) -> None:
        """Take over what fairseq logs of an interval ("train_inner"), an epoch ("train") or a validation ("valid")."""
        for key, value in logged.items():
            self.last[key.removeprefix("train_")] = value  # of an epoch that is too short for an interval
        if (num_updates := logged.get("valid_num_updates")) is not None:
            if self.last.get("num_updates"):  # the number of epochs was logged some updates before
                self.last["update"] = self.last.get("update", 0.0) * num_updates / self.last["num_updates"]
            self.last["num_updates"] = num_updates
        self.has_news |= kind == "valid" or (kind == "train" and "valid_loss" not in self.last)
        if self.first_share is None:
            self.first_share = self.share

    @property
    def share(self) -> float:
        """Share of the training that is done, from 0 to 1."""
        shares = [self.last.get("num_updates", 0.0) / self.max_update] if self.max_update else []
        shares += [self.last.get("update", 0.0) / self.max_epoch] if self.max_epoch else []
        return min(max(shares, default=0.0), 1.0)

    def __str__(self) -> str:
        last, left = self.last, self.seconds_left()
        epochs = f" of {self.max_epoch:.0f}" if self.max_epoch else ""
        updates = f" of {self.max_update:,.0f}" if self.max_update else ""
        parts = [
            f"epoch {last['epoch']:.0f}{epochs}" if "epoch" in last else "",
            f"update {last['num_updates']:,.0f}{updates}" if "num_updates" in last else "",
            f"loss {last['loss']:.3f}" if "loss" in last else "",
            f"validation loss {last['valid_loss']:.3f}" if "valid_loss" in last else "",
            f"BLEU {last['valid_bleu']:.2f}" if "valid_bleu" in last else "",
            f"{last['wps']:,.0f} tokens/s" if "wps" in last else "",
            f"{duration(left)} left" if left is not None and self.share < ALMOST_ALL else "",
        ]
        return ", ".join(filter(None, parts))

    def seconds_left(self) -> float | None:
        """Return the expected time to the end at the speed since the start; None if that is unknown."""
        done = self.share - (self.first_share or 0.0)
        return (1 - self.share) * (time.monotonic() - self.started) / done if done > 0 else None


def last_value(arguments: Sequence[str], flag: str) -> float:
    """Return the number that a flag has in a command, 0 without the flag or with another value."""
    values = [value for name, value in pairwise(arguments) if name == flag]
    with suppress(ValueError):
        return float(values[-1]) if values else 0.0
    return 0.0


@contextmanager
def follow(arguments: Sequence[str], is_verbose: bool) -> Iterator[Callable[[str], None]]:
    """Yield the function that is to be called with each part of the output of fairseq-train or fairseq-generate.

    Args:
        arguments: of the command.
        is_verbose: print all of the output.
    """
    if is_verbose:
        yield lambda text: print_now(text, end="")
        return
    progress = TrainingProgress(last_value(arguments, "--max-epoch"), last_value(arguments, "--max-update"))
    with progress_line(sys.stdout, INTERVAL) as update:
        rest = ""

        def show(text: str) -> None:
            nonlocal rest
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                if line.startswith("$ fairseq-") or is_message(line):
                    print_now(line)
                elif match := SAMPLE.match(line):
                    print_now(f"  {match[1]}")
                elif match := PARAMETERS.match(line):
                    print_now(f"{match[1]} parameters")
                elif match := STATISTICS.match(line):
                    progress.read(match[1], finite_numbers(match[2]))
                    stays = progress.has_news and "loss" in progress.last
                    update(progress.share, str(progress), stays)
                    progress.has_news &= not stays
                    if match[1] == "train":
                        progress.last.pop("loss", None)  # the next epoch has its own, however short it is

        yield show
        if progress.has_news:
            print_now(str(progress))


def is_message(line: str) -> bool:
    """Return whether a line of fairseq's log is one that a user should see."""
    return bool(PASSED_ON.match(line) or NOT_FINITE.match(line)) and not any(word in line for word in ANNOYING)


def print_now(text: str, end: str = "\n", stream: TextIO | None = None) -> None:
    """Print to a stream, stdout by default; nothing happens if nobody reads it any more."""
    with suppress(BrokenPipeError):
        print(text, end=end, file=stream, flush=True)


Update = Callable[[float, str, bool], None]
"""Takes the share that is done, from 0 to 1, what to say about it, and whether that is to stay on a line of its own."""


@contextmanager
def progress_line(stream: TextIO, interval: float) -> Iterator[Update]:
    """Yield what shows progress: one line with a bar on a terminal, else one every `interval` seconds."""
    from rich.console import Console  # here, because most commands show none
    from rich.progress import BarColumn, Progress, TextColumn

    is_terminal, printed = stream.isatty(), time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20))
    with Progress(*columns, console=Console(file=stream), disable=not is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)

        def update(share: float, text: str, stays: bool) -> None:
            nonlocal printed
            bar.update(task, completed=share, description=text)
            if stays or (not is_terminal and time.monotonic() - printed > interval):
                print_now(text, stream=None if is_terminal else stream)  # above the bar, rich prints what is on stdout
                printed = time.monotonic()

        yield update
