"""`relumt doctor`: what is checked has one form, and what could crash or hang is tried in a child process."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from relumt.errors import describe_error
from relumt.process import end_with_parent, signal_name

Item = TypeVar("Item")

CLEANUP_LIMIT, END_LIMIT = 3, 30
"""Seconds to wait for a process that has nothing left to do, and for one that crashed: a driver can delay it."""


class Check(NamedTuple):
    """What was found about one subject.

    Attributes:
        name: the subject.
        status: "error" if training needs it and it is broken, "warning" if something else is impaired.
        detail: what was found, on one line.
        advice: what to do about it; "" if nothing has to be done.
    """

    name: str
    status: Literal["ok", "warning", "error"]
    detail: str
    advice: str = ""


def try_each(function: Callable[[Item], str | None], items: Iterable[Item], time_limit: float = 300) -> Iterator[str]:
    """Yield the problem of each item, "" if there is none.

    One child process serves all items until one has a problem; then a new one goes on, because a GPU that was accessed
    illegally is unusable for a process.

    Args:
        function: returns the problem of an item, if any; an exception, a crash and a hanging process are problems, too.
        items: its arguments; both can be pickled.
        time_limit: seconds for an item, with the start of a process, which imports torch.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not work in a forked process
    left = list(items)
    while left:
        receiver, sender = context.Pipe(duplex=False)
        with receiver, tempfile.NamedTemporaryFile(prefix="relumt-doctor-") as log:
            process = context.Process(target=_work, args=(sender, function, left, log.name, os.getpid()), daemon=True)
            process.start()
            sender.close()  # so that the end of the process ends the connection
            problem = ""
            try:
                while left and not problem:
                    problem = _receive(receiver, process, log.name, time_limit)
                    left.pop(0)
                    yield problem
            finally:
                process.join(0 if left and not problem else CLEANUP_LIMIT)
                process.kill()
                process.join(END_LIMIT)


def _receive(receiver: Connection, process: BaseProcess, log: str, time_limit: float) -> str:
    """Return the next problem that a process sends, or how it ended; the last line that it printed explains that."""
    try:
        return str(receiver.recv()) if receiver.poll(time_limit) else f"no result within {time_limit:g} seconds"
    except EOFError:
        process.join(END_LIMIT)
    status = process.exitcode or 0
    end = f"was ended by {signal_name(status)}" if status < 0 else f"ended with status {status}"
    printed = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"its process {end}" + "".join(f": {line[:200]}" for line in printed[-1:])


def _work(sender: Connection, function: Callable[[Item], str | None], items: list[Item], log: str, parent: int) -> None:
    """Send the problem of each item up to the first that has one."""
    end_with_parent(parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    problem = ""
    while items and not problem:
        os.ftruncate(descriptor, 0)  # a crash is explained by what this call prints
        try:
            problem = function(items.pop(0)) or ""
        except Exception as error:  # whatever is broken: compilation, launch, memory
            problem = describe_error(error)
        sender.send(problem)
