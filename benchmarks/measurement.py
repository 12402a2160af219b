"""Training speed, decoding speed and memory of systems that each run in a process of their own."""

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from step_profile import Summary
from timing import Speeds, relative_speeds
from worker_pool import Answer, running_workers, work_in_turns, work_together

import relumt

FAIRSEQ_WORKER = Path(__file__).with_name("fairseq_worker.py")
ONE_DEVICE = ["--distributed-world-size", "1"]


@dataclass(frozen=True)
class Workload:
    """What each system does.

    Attributes:
        warm_up: batches to train on before timing.
        steps: batches whose training steps are timed.
        translations: number of batches to translate.
        threads: number of threads; only one system computes at a time.
        repeats: how often to time the same steps again, whose shapes the libraries then know.
        profiled: number of steps under the profiler.
        time_limit: seconds for each pass over the steps.
    """

    warm_up: range
    steps: range
    translations: int
    threads: int
    repeats: int = 0
    profiled: int = 0
    time_limit: float = math.inf


@dataclass(frozen=True)
class Measurement:
    """What was measured of a system.

    Attributes:
        training, decoding: time and tokens by step and by batch.
        repeated: time and tokens by step of each further pass over the same steps.
        profile: where the time of a step goes, if that was asked for.
        held: bytes that the process held before its first step.
        peak: the largest number of bytes that it held in training.
    """

    training: list[Answer]
    decoding: list[Answer]
    held: int
    peak: int
    repeated: list[list[Answer]] = field(default_factory=list)
    profile: Summary | None = None


def relumt_arguments(data_bin: str, flags: Sequence[str]) -> list[str]:
    """Return the arguments of fairseq-train with relumt, but for the device."""
    return [data_bin, *ONE_DEVICE, *flags, "--user-dir", str(Path(relumt.__file__).parent)]


def fairseq_command(batches: Path, arguments: Sequence[str]) -> list[object]:
    """Return the command of a process that trains with these arguments of fairseq-train.

    A crash of fairseq writes a file to --save-dir, here the folder of the batches.
    """
    return [sys.executable, FAIRSEQ_WORKER, batches, *arguments, "--save-dir", batches.parent]


def measure(commands: dict[str, list[object]], workload: Workload) -> dict[str, Measurement]:
    """Let systems (name → command of the process) train in turns, and then translate in turns."""
    with running_workers(commands, workload.threads) as workers:
        before = work_together(workers, "memory")
        for number in workload.warm_up:
            work_together(workers, f"train {number}")
        passes = [
            work_in_turns(workers, "train", workload.steps, workload.time_limit) for _ in range(workload.repeats + 1)
        ]
        after = {name: worker.ask("memory") for name, worker in workers.items()}
        profiles = {
            name: worker.ask(f"profile {workload.profiled}") for name, worker in workers.items() if workload.profiled
        }
        work_in_turns(workers, "translate", range(min(1, workload.translations)))  # warm-up
        decoding = work_in_turns(workers, "translate", range(workload.translations))
    return {
        name: Measurement(
            passes[0][name],
            decoding[name],
            int(before[name]["held"]),
            int(after[name]["peak"]),
            [turns[name] for turns in passes[1:]],
            profiles.get(name),
        )
        for name in commands
    }


def relative_seconds(baseline: str, answers: dict[str, list[Answer]]) -> Speeds:
    """Return the speed of each system relative to the baseline's."""
    return relative_speeds(baseline, {name: [turn["seconds"] for turn in turns] for name, turns in answers.items()})


def tokens_per_second(answers: list[Answer]) -> float:
    """Return the median number of tokens per second."""
    return statistics.median(answer["tokens"] / answer["seconds"] for answer in answers)


def median_milliseconds(answers: list[Answer]) -> float:
    """Return the median time of a step."""
    return statistics.median(answer["seconds"] for answer in answers) * 1e3
