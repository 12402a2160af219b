"""Calls in a child process: what fails, crashes or hangs there is a result here."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relumt.doctor.isolated_calls import Failure, NotStarted, isolated_calls

ROOT = Path(__file__).resolve().parents[2]


def do(item: str) -> tuple[str, int]:
    """What the item says, in a child process."""
    if item == "raise":
        raise RuntimeError("an illegal memory access was encountered\nCompile with ...")
    if item == "exit":
        os.write(2, b"first\nlast words\n")
        os._exit(3)
    if item == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hang":
        time.sleep(600)
    print("noise on stdout")
    return item, os.getpid()


@pytest.mark.slow
def test_a_failed_call_does_not_end_the_others(capfd):
    items = ["a", "b", "raise", "c", "exit", "d", "crash", "e", "hang", "f"]
    results = list(isolated_calls(do, items, time_limit=10))
    values = [result.reason if isinstance(result, Failure) else result[0] for result in results]
    assert values == [
        "a", "b",
        "RuntimeError: an illegal memory access was encountered", "c",
        "its process ended with status 3: last words", "d",
        "its process was ended by SIGSEGV", "e",
        "no result within 10 seconds", "f",
    ]  # fmt: skip
    processes = [result[1] for result in results if not isinstance(result, Failure)]
    assert processes[0] == processes[1]
    assert len(set(processes)) == 5 and os.getpid() not in processes
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert capfd.readouterr() == ("", "")


PARENT = """
from relumt.doctor.isolated_calls import isolated_calls
from relumt.process import exit_on_signals
from tests.doctor.test_isolated_calls import do

if __name__ == "__main__":
    with exit_on_signals():
        for result in isolated_calls(do, ["a", "hang"], 600):
            print(result[1], flush=True)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_the_process_ends_with_its_parent(tmp_path, number, status):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment)
    child = Path("/proc", parent.stdout.readline().strip())
    assert child.exists()
    parent.send_signal(number)
    assert parent.wait(60) == status
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while child.exists():
        assert time.monotonic() < deadline, "the child process outlives its parent"
        time.sleep(0.1)


class NotLoadable:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return functools.partial(_fail, self.marker), ()

    def __call__(self, item):
        raise AssertionError("is never called")


def _fail(marker):
    with marker.open("a") as file:
        file.write("x")
    sys.exit("the library is broken")


def test_a_process_that_cannot_start_is_started_once(tmp_path):
    results = list(isolated_calls(NotLoadable(tmp_path / "starts"), ["a", "b", "c"], 60))
    assert len(results) == 3 and len(set(results)) == 1 and isinstance(results[0], NotStarted)
    assert results[0].reason.startswith("its process ended with status 1")
    assert (tmp_path / "starts").read_text() == "x"


def test_without_items_no_process_is_started():
    assert list(isolated_calls(do, [], 1)) == []
