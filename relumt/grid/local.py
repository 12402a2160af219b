"""Jobs on this machine, so many at a time, each with GPUs of its own where there are any."""

import os
import queue
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from relumt.console import print_status
from relumt.errors import UserError
from relumt.grid.guard import guarded
from relumt.grid.jobs import LOG, Job, outcome, wait_for_others
from relumt.grid.states import States


class Local:
    """Runs jobs side by side.

    Args:
        states: told what becomes of each job.
        shares: of the machine, one a job at a time: the GPUs that it may use, none on a CPU.
        threads: for each job on a CPU.
    """

    def __init__(self, states: States, shares: Sequence[Sequence[str]], threads: int) -> None:
        self.states = states
        self.threads = threads
        self.shares: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        for share in shares:
            self.shares.put(share)
        self.count = len(shares)
        self.guards: set[subprocess.Popen] = set()
        self.lock = Lock()
        self.ended = False

    def run(self, jobs: Sequence[Job], refresh: Callable[[], None], every: float = 1.0) -> None:
        """Run all; `refresh` is called every so many seconds. Ending this early ends every job."""
        with ThreadPoolExecutor(self.count) as pool:
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
            wait_for_others(job, self._has_ended)
            self.states.starts(job)
            try:
                status = self._status_of(job, share)
                wait_for_others(job, self._has_ended)  # where the guard alone was killed, the run goes on
                self.states.ends(job, outcome(job, status))
            except (OSError, UserError) as error:  # of this run alone: the others go on
                print_status(f"{job.name}: {error}")
                self.states.ends(job, "failed")
        finally:
            self.shares.put(share)

    def _has_ended(self) -> bool:
        return self.ended

    def _status_of(self, job: Job, share: Sequence[str]) -> int:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("ab") as log:
            log.write(f"$ {job.as_typed()}\n".encode())
            log.flush()
            with self.lock:
                if self.ended:
                    return 1
                guard = guarded(job.command, env=job.environment(share, self.threads), stdout=log, stderr=log)
                self.guards.add(guard)
            status = guard.wait()
            self.guards.discard(guard)
            guard.stdin.close()
            return status

    def _end_all(self) -> None:
        with self.lock:
            self.ended = True
            for guard in list(self.guards):
                guard.stdin.close()


def shares_of(jobs: int | None, gpus: Sequence[str], gpus_per_job: int) -> list[list[str]]:
    """The GPUs of each job that runs at a time: `jobs` of them, or as many as there are GPUs for; one on a CPU."""
    if not gpus and gpus_per_job == 1:
        return [[] for _ in range(jobs or 1)]
    together = len(gpus) // gpus_per_job
    return [list(gpus[n * gpus_per_job : (n + 1) * gpus_per_job]) for n in range(min(jobs or together, together))]


def gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the GPUs that this process may see, in their order."""
    import torch

    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]
