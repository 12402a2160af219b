"""Calls of a function in a child process, which may crash or hang without ending this one."""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from relumt.child_processes import end_with_parent, signals_held_back
from relumt.doctor.check import describe_exit
from relumt.errors import describe_error

START_LIMIT = 300
"""Seconds that a process may take to start. It imports torch."""
END_LIMIT = 30
"""Seconds to wait for the end of a process; a driver can delay it."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """Why a call has no result."""

    reason: str


class NotStarted(Failure):
    """The process did not start, so the call was not tried."""


@dataclass(frozen=True)
class _Returned(Generic[Result]):
    result: Result


def isolated_calls(
    function: Callable[[Item], Result], items: Sequence[Item], time_limit: float
) -> Iterator[Result | Failure]:
    """Yield function(item) for each item; a `Failure` for one that raises an exception, ends the process or hangs.

    One process serves all calls until one fails, because a GPU that was accessed illegally is unusable for a process.
    If a process cannot even start, all items that are left fail.

    Args:
        function: can be pickled, like items and results.
        items: its arguments.
        time_limit: seconds that a call may take.
    """
    worker: _Worker | None = None
    try:
        for number, item in enumerate(items):
            if worker is None:
                worker = _Worker(function)
                if reason := worker.start():
                    yield from (NotStarted(reason) for _ in items[number:])
                    return
            answer = worker.call(item, time_limit)
            if isinstance(answer, Failure):
                worker.stop()
                worker = None
                yield answer
            else:
                yield answer.result
    finally:
        if worker is not None:
            worker.stop()


class _Worker:
    """A process that calls `function`; its output goes to a file, whose last line explains a crash."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not work in a forked process
        self.connection, self.remote = context.Pipe()
        self.log = tempfile.NamedTemporaryFile(prefix="relumt-doctor-")  # noqa: SIM115 (closed by `stop`)
        arguments = (self.remote, function, self.log.name, os.getpid())
        self.process = context.Process(target=_serve, args=arguments, daemon=True)

    def start(self) -> str:
        """Start the process; return why it failed, "" if it did not."""
        with signals_held_back():  # a child whose parent ends before it says what to do prints a traceback
            self.process.start()
        self.remote.close()  # so that the end of the process ends the connection
        answer = self._receive(START_LIMIT)
        return answer.reason if isinstance(answer, Failure) else ""

    def call(self, item: Item, time_limit: float) -> "_Returned[Any] | Failure":
        """Return the result for an item, or why there is none."""
        with suppress(BrokenPipeError):  # the process has ended; `_receive` says how
            self.connection.send(item)
        return self._receive(time_limit)

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.process.pid is not None:
            self.process.kill()
            self.process.join(END_LIMIT)
        self.connection.close()
        self.log.close()

    def _receive(self, time_limit: float) -> "_Returned[Any] | Failure":
        try:
            if self.connection.poll(time_limit):
                answer: _Returned[Any] | Failure = self.connection.recv()
                return answer
        except (EOFError, ConnectionResetError):
            self.process.join(END_LIMIT)
            return Failure(self._describe_end())
        return Failure(f"no result within {time_limit:g} seconds")

    def _describe_end(self) -> str:
        lines = Path(self.log.name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        status = self.process.exitcode
        return f"{'its process hangs' if status is None else describe_exit(status)}{said}"


def _serve(connection: Connection, function: Callable[[Item], Result], log: str, parent: int) -> None:
    """Answer each item with the result of `function`, until a call fails or the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    end_with_parent(parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    connection.send(_Returned(None))  # the process has started
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        os.ftruncate(descriptor, 0)  # a crash is explained by what this call prints
        try:
            answer: _Returned[Any] | Failure = _Returned(function(item))
        except Exception as error:  # of every kind: compilation, launch, memory
            answer = Failure(describe_error(error))
        connection.send(answer)
