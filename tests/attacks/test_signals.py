"""Signals to a script end what it has started, and release the lock of the run."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.attacks.script_cases import STARTED, wait_until_started, waiting_training

pytestmark = pytest.mark.attack("signals")


@pytest.fixture
def start(attack, tmp_path):
    """Start a training that waits, `interrupt` it, and return how it ended and the process that waited."""
    command, settings = waiting_training(tmp_path)

    def run(interrupt):
        waiting = []

        def interrupt_when_started(process):
            waiting.append(wait_until_started(attack.folder))
            interrupt(process)

        ended = attack.process(command, env=settings, interrupt=interrupt_when_started, timeout=90)
        (attack.folder / STARTED).unlink()
        return ended, waiting[0]

    return run


def require_ended(process):
    end = time.monotonic() + 10
    while Path(f"/proc/{process}").exists() and state(process) != "Z":
        assert time.monotonic() < end, "fairseq-train goes on"
        time.sleep(0.02)


def state(process):
    """Return the letter that stands for a process's state: Z for a zombie."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def require_unlocked(folder):
    for lock in folder.rglob(".lock"):
        subprocess.run(["flock", "--nonblock", str(lock), "true"], check=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_to_a_script_ends_fairseq(start, attack, number):
    ended, fairseq = start(lambda process: process.send_signal(number))
    assert ended.status == (-number if number == signal.SIGKILL else 128 + number)
    require_ended(fairseq)
    require_unlocked(attack.folder)


def test_ctrl_c_ends_fairseq(start, attack):
    ended, fairseq = start(lambda process: os.killpg(process.pid, signal.SIGINT))
    assert ended.status == 128 + signal.SIGINT
    require_ended(fairseq)
    require_unlocked(attack.folder)


def test_a_second_start_is_refused_and_a_killed_one_taken_over(attack, tmp_path):
    command, settings = waiting_training(tmp_path)
    first = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fairseq = wait_until_started(attack.folder)
        second = attack.process(command, env=settings, timeout=60)
        assert second.status == 2 and "another process is working on this run; wait for it or stop it" in second.error
    finally:
        first.kill()
        first.wait()
    require_ended(fairseq)
    (attack.folder / STARTED).unlink()
    third = attack.process(
        command,
        env=settings,
        interrupt=lambda process: (wait_until_started(attack.folder), process.terminate()),
        timeout=90,
    )
    assert third.status == 128 + signal.SIGTERM
