"""Signals to the scripts end everything that they started, and release the lock of the run."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.attacks.attack import ROOT
from tests.attacks.script_cases import STARTED, write_python

pytestmark = pytest.mark.attack("signals")

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]

NAMES = ("small", "softmax")
TRAINED = {"IS_TRAINED": "1"}
EVALUATED = TRAINED | {"IS_EVALUATED": "1"}
SCRIPTS = {
    "scripts/train.sh": (NAMES, {}),
    "scripts/run.sh": (NAMES, {}),
    "scripts/evaluate.sh": (NAMES, TRAINED),
    "scripts/analyze.sh": (NAMES, EVALUATED),
    "scripts/reproduce.sh": (("rela_table3",), {}),
    "scripts/demo.sh": ((), {}),
    "data_prep/prepare.sh": (("--src", "de"), {}),
}
"""Script → its arguments, and the environment in which it comes to a command that waits."""


@pytest.fixture
def start(attack, tmp_path):
    """Start a script, `interrupt` it as soon as its command waits, and return how it ended."""
    python = write_python(tmp_path)

    def run(script, interrupt):
        arguments, environment = SCRIPTS[script]

        def interrupt_when_started(process):
            end = time.monotonic() + 60
            while not (attack.folder / STARTED).exists():
                assert process.poll() is None and time.monotonic() < end, "the command did not start"
                time.sleep(0.02)
            interrupt(process)

        (attack.folder / "runs").mkdir()
        environment = environment | {"PYTHON": str(python)}
        return attack.process(
            [ROOT / script, *arguments], env=environment, interrupt=interrupt_when_started, timeout=30
        )

    return run


def require_unlocked(folder):
    for lock in folder.rglob(".lock"):
        subprocess.run(["flock", "--nonblock", str(lock), "true"], check=True)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "script",
    [name if name == "scripts/run.sh" else pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS],
)
def test_a_signal_to_a_script_alone_ends_its_children(attack, start, script, number):
    ended = start(script, lambda process: process.send_signal(number))
    assert ended.status == -number
    assert (attack.folder / "ended").exists(), "the command was killed without a SIGTERM before"
    require_unlocked(attack.folder)


def test_ctrl_c_reaches_the_script_and_its_children(attack, start):
    ended = start("scripts/run.sh", lambda process: os.killpg(process.pid, signal.SIGINT))
    assert ended.status == -signal.SIGINT
    require_unlocked(attack.folder)


def test_sigkill_to_the_process_group_of_a_script_ends_its_children(attack, start):
    ended = start("scripts/run.sh", lambda process: os.killpg(process.pid, signal.SIGKILL))
    assert ended.status == -signal.SIGKILL
    require_unlocked(attack.folder)


def test_a_shell_reports_status_130_after_ctrl_c_and_goes_no_further(attack, tmp_path):
    python = write_python(tmp_path)
    (attack.folder / "runs").mkdir()
    command = f"{ROOT}/scripts/train.sh small softmax; echo status $?; false"

    def interrupt(process):
        deadline = time.monotonic() + 60
        while not (attack.folder / STARTED).exists():
            assert time.monotonic() < deadline, "the script has not started"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)

    ended = attack.process(
        ["bash", "-c", f"trap 'echo trapped' INT; {command}"], env={"PYTHON": str(python)}, interrupt=interrupt
    )
    assert ended.stdout.splitlines() == ["trapped", "status 130"]


def children(process):
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_children_end_if_only_the_inner_shell_is_killed(attack, start):
    """The shell that the user sees starts a supervisor, and that one another shell."""

    def kill_shell(process):
        (supervisor,) = children(process.pid)
        shell, _watcher = children(supervisor)
        os.kill(shell, signal.SIGKILL)

    assert start("scripts/run.sh", kill_shell).status == 128 + signal.SIGKILL
    require_unlocked(attack.folder)


def state(process):
    """Return the letter that stands for a process's state: T for stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_z_pauses_the_children_until_they_are_continued(attack, start):
    def pause_and_continue(process):
        (supervisor,) = children(process.pid)
        shell, _watcher = children(supervisor)
        os.killpg(process.pid, signal.SIGTSTP)
        wait_until(lambda: state(shell) == state(supervisor) == "T")
        os.killpg(process.pid, signal.SIGCONT)
        wait_until(lambda: state(shell) != "T" != state(supervisor))
        process.terminate()

    assert start("scripts/train.sh", pause_and_continue).status == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", range(0, 300, 10))
def test_a_kill_while_a_script_starts_leaves_nothing(attack, tmp_path, milliseconds):
    (attack.folder / "runs").mkdir()
    number = SIGNALS[milliseconds // 10 % len(SIGNALS)]

    def interrupt(process):
        time.sleep(milliseconds / 1000)
        if number == signal.SIGINT:  # as from a terminal; a shell ignores it while a child handles it
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)

    environment = {"PYTHON": str(write_python(tmp_path))}
    ended = attack.process([ROOT / "scripts/run.sh", *NAMES], env=environment, interrupt=interrupt, timeout=30)
    assert ended.status == -number
    require_unlocked(attack.folder)
