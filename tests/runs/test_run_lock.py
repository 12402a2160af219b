import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.run_lock import RunLock

ROOT = Path(__file__).resolve().parents[2]

HOLD = """
import sys
from pathlib import Path
from relumt.runs.run_lock import RunLock
lock = RunLock()
lock.acquire(Path(sys.argv[1]))
lock.acquire(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked the run, until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_run_that_another_process_is_working_on_is_refused(tmp_path, holder):
    folder = tmp_path / "run"
    with pytest.raises(UserError) as refused:
        RunLock().acquire(folder)
    assert str(refused.value) == f"{folder}: another process is working on this run; wait for it or stop it"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = RunLock()
    lock.acquire(folder)
    lock.release(folder)
    RunLock().acquire(folder)


def test_a_run_can_be_waited_for(tmp_path, holder, monkeypatch):
    messages = []

    def release(message):
        messages.append(message)
        holder.kill()

    monkeypatch.setattr("relumt.runs.run_lock.print_status", release)
    RunLock().wait_for(tmp_path / "run")
    assert messages == [f"{tmp_path / 'run'}: another process is working on this run; waiting for it"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = RunLock()
    lock.acquire(tmp_path / "run")
    lock.release(tmp_path / "run")
    lock.wait_for(tmp_path / "run")


def test_a_lock_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    with pytest.raises(UserError, match="is not a writable folder; change RUNS"):
        RunLock().acquire(tmp_path / "run")
