"""Worker processes that a benchmark lets work in turns, see worker_protocol.py.

Systems that are compared run in processes of their own, because some change settings of the whole process (the backend
of matrix products, the allocator) and others need another Python environment.
"""

import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from relumt.console import print_status
from relumt.errors import AttemptFailedError, UserError
from relumt.plugin.cpu_products import CACHES, COMPILED_PRODUCTS

Answer = dict[str, Any]

PAUSE = 0.02
"""Seconds between two turns; by then the OpenMP threads of the last worker have stopped spinning and sleep."""


def worker_environment() -> dict[str, str]:
    """Return the environment without what `relumt.register()` has set in it: stock fairseq runs without relumt."""
    limit = str(COMPILED_PRODUCTS)
    return {name: value for name, value in os.environ.items() if name not in CACHES or value != limit}


class Worker:
    """A process that answers requests.

    Args:
        name: of the system, for error messages.
        command: arguments of the process.
        threads: number of threads it computes with.
    """

    def __init__(self, name: str, command: Sequence[object], threads: int) -> None:
        self.name = name
        try:
            self.process = subprocess.Popen(
                [str(argument) for argument in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=worker_environment() | {"OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"},
            )
        except OSError as error:
            raise UserError(f"{name}: {command[0]} cannot be run ({error.strerror}); expected a Python") from None

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

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_workers(commands: Mapping[str, Sequence[object]], threads: int) -> Iterator[dict[str, Worker]]:
    """Start the process of each system, wait until all are ready, and end them after the block."""
    workers: dict[str, Worker] = {}
    try:
        for name, command in commands.items():
            workers[name] = Worker(name, command, threads)
        for worker in workers.values():
            worker.ask("memory")
        yield workers
    finally:
        for worker in workers.values():
            worker.stop()


def work_together(workers: dict[str, Worker], request: str) -> dict[str, Any]:
    """Let all workers answer a request at the same time, which is not for timing: system → answer."""
    with ThreadPoolExecutor(len(workers)) as pool:
        return dict(zip(workers, pool.map(lambda worker: worker.ask(request), workers.values()), strict=True))


def work_in_turns(
    workers: dict[str, Worker], task: str, numbers: Sequence[int], time_limit: float = math.inf
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
        for name in list(workers) if turn % 2 else reversed(workers):
            time.sleep(PAUSE)
            answers[name].append(workers[name].ask(f"{task} {number}"))
        print_status(f"{task}: {turn + 1} of {len(numbers)}")
    return answers
