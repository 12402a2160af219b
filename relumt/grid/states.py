"""What became of each job so far, and the table of it that is watched."""

import time
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from rich.table import Table

from relumt.console import print_status
from relumt.grid.jobs import Job, Progress, progress

STATES = ("running", "waiting", "done", "diverged", "refused", "failed")

SHOWN = 30
"""Rows of the table: what runs, then what ended last."""


class States:
    """Thread-safe record of the state of each job, one of STATES.

    Args:
        jobs: all of them.
        quiet: whether to say nothing when one ends, because a live table shows it.
        together: how many run at a time.
    """

    def __init__(self, jobs: Sequence[Job], quiet: bool, together: int) -> None:
        self.jobs = jobs
        self.quiet = quiet
        self.together = together
        self.of: dict[Job, str] = dict.fromkeys(jobs, "waiting")
        self.began: dict[Job, float] = {}
        self.trains: dict[Job, tuple[float, Progress]] = {}
        self.took: dict[Job, float] = {}
        self.lock = Lock()

    def starts(self, job: Job) -> None:
        """It starts now."""
        with self.lock:
            self.of[job] = "running"
            self.began[job] = time.monotonic()
        self._tell(job)

    def ends(self, job: Job, state: str) -> None:
        """It has ended, in this state."""
        with self.lock:
            self.of[job] = state
            self.took[job] = time.monotonic() - self.began[job]
        self._tell(job)

    def those(self, state: str) -> list[Job]:
        """The jobs in a state."""
        with self.lock:
            return [job for job, of in self.of.items() if of == state]

    def _tell(self, job: Job) -> None:
        if not self.quiet:
            counts = Counter(self.of.values())
            print_status(f"{job.name}: {self.of[job]} ({counts['waiting']} waiting, {counts['running']} running)")

    def table(self) -> Table:
        """What to show now."""
        with self.lock:
            states = dict(self.of)
        running = {job: progress(job) for job, state in states.items() if state == "running"}
        left = {job: seconds_left(*self._trains(job, of), of) for job, of in running.items()}
        table = Table(title=self._title(states, left))
        for head in ("run", "state", "progress", "update", "loss", "left"):
            table.add_column(head, justify="left" if head in ("run", "state") else "right")
        ended = [job for job in reversed(self.jobs) if states[job] not in ("waiting", "running")]
        for job in [*running, *ended][:SHOWN]:
            table.add_row(job.name, states[job], *(cells(running[job], left[job]) if job in running else ()))
        return table

    def _trains(self, job: Job, now: Progress) -> tuple[float, Progress]:
        """When it was first seen to train, and how far it was: before, it loads, or what it starts from is trained."""
        if not now.fraction:
            return time.monotonic(), now
        return self.trains.setdefault(job, (time.monotonic(), now))

    def _title(self, states: dict[Job, str], left: dict[Job, float | None]) -> str:
        counts = Counter(states.values())
        text = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
        known = [seconds for seconds in left.values() if seconds is not None]
        took = list(self.took.values()) or known
        if len(known) < len(left) or (counts["waiting"] and not took):
            return text
        waiting = counts["waiting"] * sum(took) / len(took) if counts["waiting"] else 0.0
        return f"{text}; about {clock((sum(known) + waiting) / max(1, self.together))} left"


def cells(of: Progress, left: float | None) -> tuple[str, str, str, str]:
    """Progress, update, loss and time left, as they are shown."""
    return f"{of.fraction:.0%}", str(of.update), "" if of.loss is None else f"{of.loss:.3f}", clock(left)


def seconds_left(began: float, then: Progress, now: Progress) -> float | None:
    """Until training ends, at the rate since `began`; None while it cannot be told."""
    done = now.fraction - then.fraction
    return (1 - now.fraction) * (time.monotonic() - began) / done if done > 0 else None


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds; nothing for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
