"""Measurement of one length: both circuits in alternation, every decrypted output compared with exact integers."""

import time

from relumt.console import print_status
from relumt.encrypted_attention.oracle import ORACLES
from relumt.encrypted_attention.worker_process import Circuit, Ready, Run, start_worker
from relumt.errors import AttemptFailedError
from relumt.runs.environment import describe_revision
from relumt.tables.inhibitor_table3 import EncryptedTimes, MeasuredCircuit, Origin

SEED = 1
"""Seed of the random inputs."""


def measure(python: str, origin: Origin, time_limit: float) -> EncryptedTimes:
    """Return the times of both circuits for `origin.length`.

    Args:
        python: interpreter with Concrete.
        origin: what is measured, and how often.
        time_limit: seconds for one step of the worker.

    Raises:
        UserError: the environment lacks Concrete.
        AttemptFailedError: the measurement failed, or a decrypted output is wrong.
    """
    versions: dict[str, str] = {}
    circuits: dict[str, Circuit] = {}
    runs: dict[str, list[Run]] = {attention: [] for attention in ORACLES}
    started = time.monotonic()
    with start_worker(python, origin.length, origin.repetitions, SEED) as worker:
        for message in worker.messages(time_limit):
            if isinstance(message, Ready):
                versions = message.versions
            elif isinstance(message, Circuit):
                circuits[message.attention] = message
                made = f"{message.bootstraps} bootstraps, compiled and keys generated"
                _report(origin, message.attention, made, started)
            elif isinstance(message, Run):
                check_output(message)
                runs[message.attention].append(message)
                seconds = f"run {len(runs[message.attention])} took {message.cpu_seconds:.2f} s of CPU time, exact"
                _report(origin, message.attention, seconds, started)
    if any(len(found) != origin.repetitions + 1 for found in runs.values()):
        raise AttemptFailedError("the process with Concrete ended before its last run; run the command again")
    dot_product, inhibitor = (summarize(circuits[name], runs[name]) for name in ("dot product", "inhibitor"))
    return EncryptedTimes(origin, versions, describe_revision(), dot_product, inhibitor)


def check_output(run: Run) -> None:
    """Raise AttemptFailedError unless a decrypted output is what the oracle computes."""
    expected = ORACLES[run.attention](*run.inputs)
    if run.output != expected:
        raise AttemptFailedError(
            f"{run.attention}: expected {expected} for the inputs {list(run.inputs)}, decrypted {run.output}; report "
            "this as an issue"
        )


def summarize(circuit: Circuit, runs: list[Run]) -> MeasuredCircuit:
    """Return what is kept of a circuit; the first run is a warm-up."""
    return MeasuredCircuit(
        bootstraps=circuit.bootstraps,
        max_bits=circuit.max_bits,
        error_probability=circuit.error_probability,
        complexity=circuit.complexity,
        key_bytes=circuit.key_bytes,
        compile_cpu_seconds=circuit.compile_cpu_seconds,
        keygen_cpu_seconds=circuit.keygen_cpu_seconds,
        cpu_seconds=[run.cpu_seconds for run in runs[1:]],
        elapsed_seconds=[run.elapsed_seconds for run in runs[1:]],
    )


def _report(origin: Origin, attention: str, what: str, started: float) -> None:
    print_status(f"n = {origin.length}, {attention}: {what} (after {time.monotonic() - started:.0f} s)")
