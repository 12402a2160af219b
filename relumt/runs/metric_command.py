"""Run a program that scores segments: with a time limit, and with a limit to what it may print.

The program reads one JSON object per line: {"source": …, "translation": …, "reference": …}. It prints one number per
segment, in order and one per line. It may end with a JSON object: {"score": …, "version": …}.
"""

import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import IO, Annotated

import msgspec

from relumt.arguments import finite_number
from relumt.errors import AttemptFailedError, UserError
from relumt.files import decode_json
from relumt.process import signal_name, start_in_session
from relumt.runs.scored_segments import Segment

MAX_SCORE_BYTES = 64
"""Bytes of a line with a score."""

MAX_SUMMARY_BYTES = 4096
"""Bytes of the last line."""

MAX_MESSAGE_BYTES = 4096
"""Bytes from the end of standard error that are kept."""

MAX_SHOWN = 200
"""Characters of a message of the program that are printed."""

READ_SIZE = 1 << 16

EXPECTED = "expected one number per line for each segment"


@dataclass(frozen=True)
class Summary:
    """The last line that a program may print.

    Attributes:
        score: score of all segments; None for the mean.
        version: what identifies the metric: the names and versions of program and model.
    """

    score: float | None = None
    version: Annotated[str, msgspec.Meta(max_length=300)] = ""


@dataclass(frozen=True)
class MetricOutput:
    """The scores that a program printed: of each segment, and of all of them; and its version, "" if unknown."""

    segment_scores: list[float]
    score: float
    version: str


def score_with_command(command: str, segments: Sequence[Segment], time_limit: int) -> MetricOutput:
    """Score segments with another program.

    Args:
        command: the program and its arguments, quoted as for a shell; no shell reads it.
        segments: what to score.
        time_limit: seconds after which the program and all that it started are killed.

    Raises:
        UserError: there is no such program, or it cannot be executed.
        AttemptFailedError: it failed, took too long, or did not print one finite number for each segment.
    """
    max_bytes = MAX_SCORE_BYTES * len(segments) + MAX_SUMMARY_BYTES
    with tempfile.TemporaryFile() as stdin:
        for segment in segments:
            stdin.write(msgspec.json.encode(segment) + b"\n")
        stdin.seek(0)
        output = run_command(split_command(command), stdin, max_bytes, time_limit)
    return parse_output(output, len(segments))


def split_command(command: str) -> list[str]:
    """Return the program and its arguments; raises UserError if there is none or a quotation mark is missing."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--external {command!r}: {error}; quote it as for a shell") from None
    if not words or "\0" in command:
        raise UserError(f"--external {command!r}: expected a program and its arguments")
    return words


def run_command(command: Sequence[str], stdin: IO[bytes], max_bytes: int, time_limit: int) -> bytes:
    """Return what a program prints. Whatever it has started is killed when it ends or fails.

    Raises:
        UserError: there is no such program, or it cannot be executed.
        AttemptFailedError: it failed, took too long, or printed more than `max_bytes`.
    """
    deadline = time.monotonic() + time_limit
    with start(command, stdin) as process:
        try:
            output, message = read_output(process, command[0], max_bytes, deadline)
        except TimeoutError:
            raise AttemptFailedError(
                f"{command[0]} was killed after the time limit of {time_limit} s; give a longer one with --time-limit"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise AttemptFailedError(f"{command[0]} {describe_status(process.returncode)}{describe_message(message)}")
    return output


def start(command: Sequence[str], stdin: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own; raises UserError if it cannot be executed."""
    try:
        return start_in_session(command, stdin, subprocess.PIPE)
    except OSError as error:
        raise UserError(
            f"--external: {command[0]} cannot be executed ({error.strerror}); name a program, or an interpreter and "
            "its script"
        ) from None


def read_output(process: subprocess.Popen[bytes], program: str, max_bytes: int, deadline: float) -> tuple[bytes, bytes]:
    """Return all that a process prints to stdout, and the end of what it prints to stderr, once it has ended.

    Raises:
        TimeoutError: the process, or one that it started, still runs at the time `deadline`.
        AttemptFailedError: it printed more than `max_bytes` to stdout.
    """
    assert process.stdout and process.stderr, "both are pipes"
    printed = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    with selectors.DefaultSelector() as selector:
        for descriptor in printed:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in wait_until(selector, deadline):
                chunk = os.read(key.fd, READ_SIZE)
                printed[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            output, message = printed.values()
            if len(output) > max_bytes:
                raise AttemptFailedError(f"{program} printed more than {max_bytes} bytes; {EXPECTED}")
            printed[process.stderr.fileno()] = message[-MAX_MESSAGE_BYTES:]
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return output, message


def wait_until(selector: selectors.BaseSelector, deadline: float) -> list[tuple[selectors.SelectorKey, int]]:
    """Return what can be read; raises TimeoutError at the time `deadline`."""
    ready = selector.select(max(0.0, deadline - time.monotonic()))
    if not ready:
        raise TimeoutError
    return ready


def describe_status(status: int) -> str:
    """Say how a process failed."""
    return f"ended with status {status}" if status > 0 else f"was killed by {signal_name(status)}"


def describe_message(message: bytes) -> str:
    """Return the last line of what a program printed to stderr, "" if it is empty; a traceback ends with the error."""
    lines = [line.strip() for line in message.decode(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:MAX_SHOWN]}" if lines else " and printed no error message"


def parse_output(output: bytes, count: int) -> MetricOutput:
    """Return the scores that a program printed for `count` segments.

    Raises:
        AttemptFailedError: there are more or fewer, or one is not a finite number.
    """
    lines = output.decode(errors="replace").removesuffix("\n").split("\n")
    summary = Summary()
    if lines[-1].startswith("{"):
        summary = parse_summary(lines.pop())
    scores = [parse_score(line, number) for number, line in enumerate(lines, start=1)] if any(lines) else []
    if len(scores) != count:
        raise AttemptFailedError(f"--external printed {len(scores)} scores for {count} segments; {EXPECTED}")
    return MetricOutput(scores, fmean(scores) if summary.score is None else summary.score, summary.version)


def parse_score(line: str, number: int) -> float:
    """Return the number on a line; raises AttemptFailedError if it is none or not finite."""
    try:
        return finite_number(line.strip())
    except ArgumentTypeError as error:
        raise AttemptFailedError(f"--external, line {number} of its output: {error}; {EXPECTED}") from None


def parse_summary(line: str) -> Summary:
    """Return what the last line says; raises AttemptFailedError if it has other values."""
    try:
        return decode_json(line, Summary, "--external, last line of its output", "print a score and a version")
    except UserError as error:
        raise AttemptFailedError(str(error)) from None
