"""Jobs on this machine, so many at a time, each with GPUs of its own where there are any."""

import fcntl
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

from relumt.console import say
from relumt.grid.jobs import LOG, Job, outcome
from relumt.grid.states import States


class Local:
    """Runs jobs side by side.

    Args:
        states: told what becomes of each job.
        shares: of the machine, one a job at a time: the GPUs that it may use, none on a CPU.
        threads: for each job on a CPU.
    """

    def __init__(self, states: States, shares: Sequence[Sequence[int]], threads: int) -> None:
        self.states = states
        self.threads = threads
        self.shares: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
        for share in shares:
            self.shares.put(share)
        self.count = len(shares)
        self.guards: set[subprocess.Popen] = set()
        self.lock = Lock()
        self.ended = False

    def run(self, jobs: Sequence[Job], refresh: Callable[[], None], every: float = 1.0) -> None:
        """Run all; `refresh` is called every so many seconds. Ending this early ends every job."""
        with self._ending_all(), ThreadPoolExecutor(self.count) as pool:
            futures = [pool.submit(self._run, job) for job in jobs]
            try:
                while not all(future.done() for future in futures):
                    refresh()
                    time.sleep(every)
            finally:
                self._end_all()
                pool.shutdown(cancel_futures=True)
            for future in futures:
                future.result()

    def _run(self, job: Job) -> None:
        share = self.shares.get()
        try:
            self._wait_for_others(job)
            self.states.starts(job)
            status = self._status_of(job, share)
            self.states.ends(job, outcome(job) if status == 0 else "failed")
        finally:
            self.shares.put(share)

    def _wait_for_others(self, job: Job) -> None:
        """Until no other process works on the run: one of a grid whose guard was killed may, to a good end."""
        if is_held(job):
            say(f"{job.name}: another process works on this run; waiting for it")
        while is_held(job) and not self.ended:
            time.sleep(1)

    def _status_of(self, job: Job, share: Sequence[int]) -> int:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("ab") as log:
            log.write(f"$ {job.as_typed()}\n".encode())
            log.flush()
            with self.lock:
                if self.ended:
                    return 1
                guard = subprocess.Popen(
                    [sys.executable, "-P", "-m", "relumt.grid.guard", *job.command],
                    env=job.environment(share, self.threads),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # what is sent to the grid's group, Ctrl-C too, reaches the grid alone
                )
                self.guards.add(guard)
            status = guard.wait()
            self.guards.discard(guard)
            guard.stdin.close()
            return status

    @contextmanager
    def _ending_all(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._end_all()

    def _end_all(self) -> None:
        with self.lock:
            self.ended = True
            for guard in list(self.guards):
                guard.stdin.close()


def is_held(job: Job) -> bool:
    """Whether a process has the lock that scripts/common.sh takes on a run."""
    path = job.folder / ".lock"
    if not path.is_file():
        return False
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def shares_of(jobs: int | None, gpus: int, gpus_per_job: int) -> list[list[int]]:
    """The GPUs of each job that runs at a time: `jobs` of them, or as many as there are GPUs for; one on a CPU."""
    if not gpus:
        return [[] for _ in range(jobs or 1)]
    together = gpus // gpus_per_job
    return [list(range(n * gpus_per_job, (n + 1) * gpus_per_job)) for n in range(min(jobs or together, together))]
