"""What all benchmarks share: timing in one process and in processes that take turns, peak memory, files of results."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fairseq_worker import write_batches
from filelock import FileLock
from torch.profiler import ProfilerActivity, profile

import relumt
from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.files import write_text_atomically
from relumt.papers.speeds import Ratio, median_ratio
from relumt.runs.environment import Device, Precision, cpu_name, describe_revision, find_device

ENVIRONMENT = dict(os.environ)
"""Before `relumt.register()` adds to it: stock fairseq runs without relumt."""

FAIRSEQ_WORKER = Path(__file__).with_name("fairseq_worker.py")
ONE_DEVICE = ["--distributed-world-size", "1"]

PAUSE = 0.02
"""Seconds between two turns; by then the OpenMP threads of the last worker have stopped spinning and sleep."""

Speeds = dict[str, Ratio]
"""System → its speed relative to the baseline's."""

Answer = dict[str, Any]


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of `work`."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def alternating_times(
    works: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[Callable[[], object]], float] = seconds
) -> dict[str, list[float]]:
    """Return name → seconds of each repeat after a warm-up; the order of the works alternates."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name in list(works)[:: 1 if repeat % 2 else -1]:
            elapsed = clock(works[name])
            if repeat:  # the first one is a warm-up
                times[name].append(elapsed)
    return times


def relative_speeds(baseline: str, times: Mapping[str, list[float]]) -> Speeds:
    """Divide the baseline's times by each system's, pair by pair; above 1 is faster than the baseline."""
    return {
        name: median_ratio([reference / own for own, reference in zip(measured, times[baseline], strict=True)])
        for name, measured in times.items()
    }


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the largest amount of memory that tensors made by `work` held at a time."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak


def benchmark_device(precision: Precision | None) -> Device:
    """Return the single device to measure on, with the precision of training; None for what scripts/ choose."""
    return replace(find_device(precision), count=1)


def print_origin(threads: int | None = None) -> None:
    """Print the machine, the number of threads (by default torch's) and the revision: where a copied table is from."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name()
    threads = threads or torch.get_num_threads()
    print(f"\nMachine: {name}, {threads} thread{'s' if threads > 1 else ''}; {describe_revision()}")


def write_results(path: Path, what: str, baseline: str, device: Device, results: Mapping[str, Any]) -> None:
    """Write results as JSON: what was measured, on which device, relative to what, and the revision."""
    write_text_atomically(path, json.dumps(describe(what, baseline, device) | results, indent=2) + "\n")


def describe(what: str, baseline: str, device: Device) -> dict[str, Any]:
    """Return what a table says about a measurement, see `relumt.papers.speeds.Measurement`."""
    return {"what": what, "baseline": baseline, "device": str(device), "revision": describe_revision()}


def is_up_to_date(path: Path | None, inputs: Mapping[str, Any], device: Device) -> bool:
    """Return, and say, whether `path` has results for these inputs on this kind of device.

    inputs: what `write_results` was given as the results' "inputs", such as checkpoints and settings.
    """
    results = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    up_to_date = (results.get("inputs"), results.get("device")) == (inputs, str(device))
    if up_to_date:
        print_status(f"{path}: already measured")
    return up_to_date


class Worker:
    """A process of fairseq_worker.py, which answers requests.

    Systems that are compared run in processes of their own, because some change settings of the whole process, such as
    the backend of matrix products and the allocator.

    Args:
        name: of the system, for error messages.
        command: arguments of the process.
        threads: number of threads it computes with.
    """

    def __init__(self, name: str, command: Sequence[object], threads: int) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [str(argument) for argument in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"},
        )

    def ask(self, request: str) -> Answer:
        """Send a request and return the answer.

        Raises:
            UserError: the process ended, with status 2; it has said why.
            AttemptFailedError: it ended with another status.
        """
        assert self.process.stdin and self.process.stdout  # both are pipes
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
        answer: str = self.process.stdout.readline()
        if answer:
            return json.loads(answer)
        status = self.process.wait()
        kind = UserError if status == 2 else AttemptFailedError
        raise kind(f"{self.name}: its process ended with status {status}; see its messages above")


@contextmanager
def running_workers(commands: Mapping[str, Sequence[object]], threads: int) -> Iterator[dict[str, Worker]]:
    """Start the process of each system, and end them after the block."""
    workers: dict[str, Worker] = {}
    try:
        for name, command in commands.items():
            workers[name] = Worker(name, command, threads)
        yield workers
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.wait()


def work_in_turns(
    workers: Mapping[str, Worker], task: str, numbers: Sequence[int], time_limit: float = math.inf
) -> dict[str, list[Answer]]:
    """Let all workers do a task with each number, one after the other and in alternating order.

    Args:
        workers: system → its process.
        task: what to ask for.
        numbers: of batches.
        time_limit: seconds after which no further turn begins.

    Returns:
        system → answers, in the order of `numbers`.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in workers}
    start = time.monotonic()
    for turn, number in enumerate(numbers):
        if time.monotonic() - start > time_limit:
            break
        for name in list(workers)[:: 1 if turn % 2 else -1]:
            time.sleep(PAUSE)
            answers[name].append(workers[name].ask(f"{task} {number}"))
        print_status(f"{task}: {turn + 1} of {len(numbers)}")
    return answers


def first_steps(workers: Mapping[str, Worker]) -> dict[str, list[Answer]]:
    """Let all workers train on the very first batch, at the same time, because they may compile for a minute."""
    with ThreadPoolExecutor(len(workers)) as threads:
        answers = threads.map(lambda worker: worker.ask("train 0"), workers.values())
        return {name: [answer] for name, answer in zip(workers, answers, strict=True)}


@dataclass(frozen=True)
class Measurement:
    """What was measured of a system.

    Attributes:
        warm_up: time and tokens of the first steps; the very first may compile.
        passes: time and tokens by step, of each pass over the same steps.
        decoding: time and tokens by batch.
        held: bytes that the process held before its first step.
        peak: the largest number of bytes that it held in training.
        profile: where the time of a step goes, if that was asked for.
    """

    warm_up: list[Answer]
    passes: list[list[Answer]]
    decoding: list[Answer]
    held: int
    peak: int
    profile: dict[str, Any] | None = None


def measure_in_turns(
    arguments: Mapping[str, Sequence[str]],
    reference: Sequence[str],
    warm_up: int,
    steps: int,
    threads: int,
    translations: int = 0,
    repeats: int = 0,
    profiled: int = 0,
    time_limit: float = math.inf,
    lock: Path | None = None,
) -> dict[str, Measurement]:
    """Let systems train in turns on the same batches, and then translate in turns.

    Args:
        arguments: system → arguments of fairseq-train.
        reference: arguments that make the batches, without a device.
        warm_up: number of batches to train on before timing.
        steps: number of batches whose training steps are timed, after those.
        threads: number of threads; only one system computes at a time.
        translations: the most batches to translate.
        repeats: how often to time the same steps again, whose shapes the libraries then know.
        profiled: number of steps under the profiler.
        time_limit: seconds for each pass over the steps.
        lock: file to lock while anything is timed; several measurements can then prepare at the same time.
    """
    with tempfile.TemporaryDirectory() as folder:
        batches = Path(folder) / "batches.pt"
        timed = range(warm_up, warm_up + steps)
        translated = range(write_batches(batches, reference, timed.stop, translations))
        # A crash of fairseq writes a file to --save-dir.
        common = [sys.executable, FAIRSEQ_WORKER, batches]
        commands = {name: [*common, *own, "--save-dir", folder] for name, own in arguments.items()}
        with running_workers(commands, threads) as workers:
            before = {name: worker.ask("memory") for name, worker in workers.items()}
            first = first_steps(workers) if warm_up else {name: [] for name in workers}
            with FileLock(lock) if lock else nullcontext():
                others = work_in_turns(workers, "train", range(1, warm_up))
                passes = [work_in_turns(workers, "train", timed, time_limit) for _ in range(repeats + 1)]
                after = {name: worker.ask("memory") for name, worker in workers.items()}
                profiles = {name: worker.ask(f"profile {profiled}") for name, worker in workers.items() if profiled}
                work_in_turns(workers, "translate", translated[:1])  # warm-up
                decoding = work_in_turns(workers, "translate", translated)
    return {
        name: Measurement(
            first[name] + others[name], [turns[name] for turns in passes], decoding[name],
            int(before[name]["held"]), int(after[name]["peak"]), profiles.get(name),
        )
        for name in arguments
    }  # fmt: skip


def relumt_arguments(data_bin: str, flags: Sequence[str]) -> list[str]:
    """Return the arguments of fairseq-train with relumt, but for the device."""
    return [data_bin, *ONE_DEVICE, *flags, "--user-dir", str(Path(relumt.__file__).parent)]


def relative_seconds(baseline: str, answers: Mapping[str, list[Answer]]) -> Speeds:
    """Return the speed of each system relative to the baseline's."""
    return relative_speeds(baseline, {name: [turn["seconds"] for turn in turns] for name, turns in answers.items()})


def tokens_per_second(answers: list[Answer]) -> float:
    """Return the median number of tokens per second."""
    return statistics.median(answer["tokens"] / answer["seconds"] for answer in answers)
