"""Run jobs in parallel on this machine, each on GPUs of its own or, if asked for, several on one."""

import os
import queue
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

from relumt.console import print_status
from relumt.errors import UserError
from relumt.papers.grid.jobs import GRID_LOG, Job, JobState
from relumt.papers.grid.status import GridStatus
from relumt.process import start_child


class LocalRunner:
    """Runs as many jobs at a time as there are groups of GPUs.

    Args:
        status: is notified of every change of a job's state.
        gpu_groups: one group of GPUs for each job that runs at the same time; empty groups on a CPU.
        threads: CPU threads per job.
    """

    def __init__(self, status: GridStatus, gpu_groups: Sequence[Sequence[str]], threads: int) -> None:
        self.status = status
        self.threads = threads
        self.num_parallel = len(gpu_groups)
        self.free_gpus: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        for gpus in gpu_groups:
            self.free_gpus.put(gpus)
        self.stopped = Event()
        self.processes: set[subprocess.Popen[bytes]] = set()

    def run(self, jobs: Sequence[Job], refresh_interval: float = 1.0) -> None:
        """Run all jobs. An exception such as KeyboardInterrupt ends the running ones."""
        with ThreadPoolExecutor(self.num_parallel) as pool:
            futures = [pool.submit(self._run_job, job) for job in jobs]
            try:
                while wait(futures, refresh_interval).not_done:
                    self.status.refresh()
                self.status.refresh()
            finally:
                self._stop()
                pool.shutdown(cancel_futures=True)
            for future in futures:
                future.result()

    def _run_job(self, job: Job) -> None:
        gpus = self.free_gpus.get()
        try:
            job.wait_until_unlocked(self.stopped.is_set)
            self.status.set_state(job, JobState.RUNNING)
            exit_status = self._run_script(job, gpus)
            self.status.set_state(job, job.outcome(exit_status))
        except (OSError, UserError) as error:  # concerns this run alone: the others go on
            print_status(f"{job.name}: {error}")
            self.status.set_state(job, JobState.FAILED)
        finally:
            self.free_gpus.put(gpus)

    def _run_script(self, job: Job, gpus: Sequence[str]) -> int:
        """Run the job's script with its output in its log; return its exit status."""
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / GRID_LOG).open("ab") as log:
            log.write(f"$ {job.shell_command()}\n".encode())
            log.flush()
            environment = job.environment(gpus, self.threads)
            process = start_child(job.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.processes.add(process)
            if self.stopped.is_set():  # then _stop may have missed this process
                process.terminate()
            exit_status = process.wait()
            self.processes.remove(process)
            return exit_status

    def _stop(self) -> None:
        self.stopped.set()
        for process in list(self.processes):
            process.terminate()


def group_gpus(jobs: int | None, gpus: Sequence[str], gpus_per_job: int, jobs_per_gpu: int = 1) -> list[list[str]]:
    """Return the GPUs of each concurrent job, in at most `jobs` groups; on a CPU the groups are empty."""
    if not gpus and gpus_per_job == jobs_per_gpu == 1:
        return [[] for _ in range(jobs or 1)]
    groups = [list(gpus[start : start + gpus_per_job]) for start in range(0, len(gpus), gpus_per_job)]
    complete = [group for group in groups if len(group) == gpus_per_job]
    return (complete * jobs_per_gpu)[:jobs]


def visible_gpus() -> list[str]:
    """Return the names by which CUDA_VISIBLE_DEVICES calls the GPUs that this process sees, in their order."""
    import torch

    count, names = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return names.split(",")[:count] if names else [str(number) for number in range(count)]
