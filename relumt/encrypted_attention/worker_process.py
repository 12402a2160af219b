"""The child process that computes with Concrete in an environment of its own, and its messages."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from relumt.child_processes import start_in_session
from relumt.encrypted_attention import concrete_worker
from relumt.errors import AttemptFailedError, UserError
from relumt.tables.inhibitor_table3 import Complexity, Count
from relumt.tables.speeds import Positive

INSTALL = (
    'python3 -m venv concrete_env && concrete_env/bin/pip install torch==2.13.0 concrete-python==2.11.0 "setuptools<81"'
)
"""Makes an environment with Concrete. concrete-python requires NumPy 1 and imports torch and pkg_resources."""

PYTHON_VARIABLE = "RELUMT_CONCRETE_PYTHON"
"""Environment variable with the interpreter of that environment."""

ADVICE = f"make an environment for it ({INSTALL}) and set {PYTHON_VARIABLE}=concrete_env/bin/python"

READ_SIZE = 65_536
END_LIMIT = 60
"""Seconds that the process may take to end after its last message."""
MAX_MESSAGE = 1_000_000
"""Bytes of a message; those of 16 tokens have less than a thousand."""

Rows = list[list[int]]


class Ready(msgspec.Struct, tag="ready", tag_field="kind"):
    """Concrete was imported."""

    versions: dict[str, str]


class Circuit(msgspec.Struct, tag="circuit", tag_field="kind"):
    """A circuit was compiled and has its keys."""

    attention: str
    bootstraps: Count
    max_bits: Count
    error_probability: float
    complexity: Complexity
    key_bytes: Count
    compile_cpu_seconds: Positive
    keygen_cpu_seconds: Positive


class Run(msgspec.Struct, tag="run", tag_field="kind"):
    """A circuit ran on encrypted inputs."""

    attention: str
    cpu_seconds: Positive
    elapsed_seconds: Positive
    inputs: tuple[Rows, Rows, Rows]
    output: Rows


class Error(msgspec.Struct, tag="error", tag_field="kind"):
    """Concrete cannot be imported."""

    reason: str


Message = Ready | Circuit | Run | Error
DECODER: "msgspec.json.Decoder[Message]" = msgspec.json.Decoder(Message)


@dataclass
class Worker:
    """A process that answers one request.

    Attributes:
        python: its interpreter, as the user named it.
        process: the child.
        log: what it prints beside its messages.
    """

    python: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def messages(self, time_limit: float) -> Iterator[Message]:
        """Yield messages until the process ends successfully.

        time_limit: seconds between two messages.

        Raises:
            UserError: it is no Python with Concrete.
            AttemptFailedError: it failed later, was killed, or sent no message in time.
        """
        failure: type[UserError] = UserError
        for line in self._lines(time_limit):
            try:
                message = DECODER.decode(line)
            except msgspec.DecodeError as error:
                raise failure(f"{self.python} sent an invalid message ({error}); {ADVICE}") from None
            if isinstance(message, Error):
                raise UserError(f"{self.python} cannot import Concrete ({message.reason}); {ADVICE}")
            failure = AttemptFailedError
            yield message
        try:
            status = self.process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            raise AttemptFailedError(f"{self.python} has sent everything, but does not end") from None
        if status < 0:
            raise AttemptFailedError(
                f"the process with Concrete was ended by signal {-status}; run the command again, and check that "
                "there is enough memory"
            )
        if status or failure is UserError:
            raise failure(f"{self.python} ended with status {status}{self._last_words()}; {ADVICE}")

    def _lines(self, time_limit: float) -> Iterator[bytes]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        received = b""
        deadline = time.monotonic() + time_limit
        while True:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AttemptFailedError(
                    f"Concrete took longer than {time_limit:g} seconds; give it more with --time-limit"
                )
            chunk = os.read(descriptor, READ_SIZE)
            if not chunk:
                return
            *lines, received = (received + chunk).split(b"\n")
            if len(received) > MAX_MESSAGE:
                raise AttemptFailedError(f"{self.python} printed {len(received)} bytes without a line break")
            if lines:
                deadline = time.monotonic() + time_limit
            yield from lines

    def _last_words(self) -> str:
        """Return the last line that the process printed beside its messages, in parentheses."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1][:200]})" if lines else ""


@contextmanager
def start_worker(python: str, length: int, repetitions: int, seed: int) -> Iterator[Worker]:
    """Start a worker that measures both circuits for one length, and end it after the block.

    Raises:
        UserError: `python` cannot be executed.
    """
    request = {"length": length, "repetitions": repetitions, "seed": seed}
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as log,
        tempfile.TemporaryDirectory(prefix="relumt-concrete-") as scratch,
    ):
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.seek(0)
        process = _start(python, stdin, log, scratch)
        try:
            yield Worker(python, process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the linker that Concrete may have started
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _start(python: str, stdin: IO[bytes], log: IO[bytes], scratch: str) -> "subprocess.Popen[bytes]":
    script = str(Path(concrete_worker.__file__).resolve())
    # PYTHONPATH and the like belong to this environment. Concrete leaves compiled circuits in TMPDIR.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": "1", "TMPDIR": scratch}
    try:
        return start_in_session([python, script], stdin, log, environment)
    except OSError as error:
        raise UserError(f"--python {python}: cannot be executed ({error.strerror}); {ADVICE}") from None
