"""The states of all jobs, and their display."""

from collections import Counter
from collections.abc import Sequence
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from relumt.console import print_status
from relumt.papers.grid.jobs import Job, JobState, read_progress

SPEED_WINDOW = 3600
"""Seconds over which the speed of training is averaged to estimate the time left."""


class GridStatus:
    """The state of every job: a line at every change and, on a terminal, a bar for every running job.

    States may be set from several threads; everything else belongs to the main thread.

    Attributes:
        display: the bars; a context manager that shows them.
    """

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self.states: dict[Job, JobState] = dict.fromkeys(jobs, JobState.WAITING)
        self.display = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[details]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
            speed_estimate_period=SPEED_WINDOW,
        )
        self._lock = Lock()
        self._bars: dict[Job, TaskID] = {}
        self._found: dict[Job, float] = {}  # the fraction of a run that an earlier start has completed
        self._skipped = 0.0
        self._total_bar = self.display.add_task("all runs", total=len(jobs), details="")

    def set_state(self, job: Job, state: JobState) -> None:
        """Record and print a job's new state."""
        with self._lock:
            self.states[job] = state
            counts = Counter(self.states.values())
        waiting, running = counts[JobState.WAITING], counts[JobState.RUNNING]
        print_status(f"{job.name}: {state} ({waiting} waiting, {running} running)")

    def jobs_in(self, state: JobState) -> list[Job]:
        """Return the jobs in a state."""
        with self._lock:
            return [job for job, own_state in self.states.items() if own_state == state]

    def refresh(self) -> None:
        """Read the progress of all running jobs and draw the bars."""
        if self.display.disable:
            return
        running = self.jobs_in(JobState.RUNNING)
        for job in [job for job in self._bars if job not in running]:
            self.display.remove_task(self._bars.pop(job))
        ended = len(self.states) - len(self.jobs_in(JobState.WAITING)) - len(running)
        completed = float(ended)
        for job in running:
            progress = read_progress(job)
            if job not in self._bars:
                self._bars[job] = self.display.add_task(job.name, total=1.0, details="")
            details = "" if progress.loss is None else f"update {progress.update}, loss {progress.loss:.3f}"
            self.display.update(self._bars[job], completed=progress.fraction, details=details)
            self._found.setdefault(job, progress.fraction)
            completed += progress.fraction
        self._skip_found(ended - len(self._found.keys() - set(running)))
        self.display.update(self._total_bar, completed=completed)
        self.display.refresh()

    def _skip_found(self, ended_at_once: int) -> None:
        """Add what was found complete to the bar of all runs without telling rich, which would take it for speed.

        Args:
            ended_at_once: number of jobs that ended without being seen running.
        """
        found = ended_at_once + sum(self._found.values())
        self.display.tasks[0].completed += found - self._skipped
        self._skipped = found
