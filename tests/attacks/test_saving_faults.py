"""Faults while a checkpoint is saved: the last good one survives each, and training resumes to the same bits.

A forked process trains a tiny model. In it, a step of saving fails (a write, flushing to the disk, renaming, copying),
or the process is killed there. Another process resumes.
"""

import errno
import multiprocessing
import os
import random
import re
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.folder import LAST_CHECKPOINT
from relumt.plugin.checkpoints.recovery import recover_best_checkpoint, recover_last_checkpoint
from tests.attacks.attack import Attack
from tests.attacks.injected_faults import (
    COPIES,
    STEPS,
    UPDATES,
    Fault,
    Training,
    Undisturbed,
    fail_with,
    inject,
    kill,
    write_training_data,
)
from tests.attacks.training_state import hash_training_state

pytestmark = pytest.mark.attack("faults")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_training_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> Undisturbed:
    training = Training(data, tmp_path_factory.mktemp("undisturbed") / "checkpoints")
    calls = {step: multiprocessing.Value("i", 0) for step in ("write", *STEPS)}

    def count_calls() -> None:
        for step, number in calls.items():
            inject(step, Fault(0, True, lambda number=number: setattr(number, "value", number.value + 1)))

    begin = time.monotonic()
    assert training.run(count_calls) == 0, training.output
    seconds = time.monotonic() - begin
    counts = {step: number.value for step, number in calls.items()}
    size = (training.folder / LAST_CHECKPOINT).stat().st_size
    return Undisturbed(hash_copies(training), counts, seconds, size)


def hash_copies(training: Training) -> dict[str, str]:
    """Return the hash of the training state in the best and the last checkpoint."""
    return {name: hash_training_state(training.folder / name) for name in COPIES}


def check_recovery(attack: Attack, training: Training, undisturbed: Undisturbed) -> None:
    """Check that a fault left only intact checkpoints, and that training resumes from the newest one to the end.

    Afterwards the best and the last checkpoint are those of an undisturbed training.
    """
    saved = max(training.updates(), default=0)
    assert recover_last_checkpoint(training.folder) == saved
    recover_best_checkpoint(training.folder)
    if saved < UPDATES:  # fairseq would train for one more update, hence scripts/train.sh does not start it either
        assert training.run() == 0, training.output
        resumed = re.findall(r"Loaded checkpoint .* @ (\d+) updates", training.output)
        assert [int(updates) for updates in resumed[-1:]] == ([saved] if saved else [])
    assert "Traceback" not in training.output
    assert hash_copies(training) == undisturbed.hashes
    assert training.unfinished() == []
    attack.outcomes.append("handled")


@dataclass(frozen=True)
class Plan:
    """A fault to inject: what fails, how, and when (as a fraction of the calls or the time of a training)."""

    step: str
    action: str
    when: float
    permanent: bool = True

    def __str__(self) -> str:
        return f"{self.action}-{self.step}-{'permanent' if self.permanent else 'once'}-{self.when:.3f}"


def plan_faults() -> list[Plan]:
    """Return the faults of the slow test, always the same."""
    generator = random.Random(22)
    kinds = [("write", action, permanent) for action in ("kill", "ENOSPC", "EIO") for permanent in (True, False)] * 4
    kinds += [(step, action, True) for step in ("fsync", "rename", "copy") for action in ("kill", "EIO")] * 3
    return [Plan(step, action, generator.random(), permanent) for step, action, permanent in kinds]


def check_fault(attack: Attack, training: Training, undisturbed: Undisturbed, plan: Plan) -> None:
    """Train with a fault, check how that ends and what it leaves, and resume."""
    action = kill if plan.action == "kill" else fail_with(getattr(errno, plan.action))
    fault = Fault(int(plan.when * undisturbed.calls[plan.step]), plan.permanent, action)
    status = training.run(lambda: inject(plan.step, fault))
    if plan.action == "kill":
        assert status == -signal.SIGKILL
    else:
        consequence = "the checkpoints saved before are intact" if plan.permanent else "trying again in 0 s"
        assert status == int(plan.permanent), training.output
        assert f"could not be saved ({os.strerror(getattr(errno, plan.action))}); {consequence}" in training.output
        assert training.unfinished() == []
    check_recovery(attack, training, undisturbed)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan("write", "ENOSPC", 0.5), marks=pytest.mark.slow),
        Plan("copy", "kill", 0.5),
        Plan("copy", "kill", 0.75),  # the last checkpoint_best.pt: no later one replaces it
    ],
    ids=str,
)
def test_a_fault_while_saving_loses_nothing(attack, data, undisturbed, tmp_path, plan):
    check_fault(attack, Training(data, tmp_path / "checkpoints"), undisturbed, plan)


def test_the_reason_of_a_crash_is_not_hidden(attack, capfd, monkeypatch):
    """crash.pt cannot be saved either; fairseq raises its error afterwards."""
    monkeypatch.setattr(fairseq_hooks, "PAUSES", (0, 0))
    Path("checkpoints").touch()
    fairseq_hooks.save({"model": {}}, "checkpoints/crash.pt")
    assert "could not be saved" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        fairseq_hooks.save({"model": {}}, "checkpoints/checkpoint1.pt")
    attack.outcomes.append("failed")


@pytest.mark.slow
@pytest.mark.parametrize("plan", plan_faults(), ids=str)
def test_many_faults_while_saving_lose_nothing(attack, data, undisturbed, tmp_path, plan):
    check_fault(attack, Training(data, tmp_path / "checkpoints"), undisturbed, plan)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [(number + 0.5) / 10 for number in range(10)])
def test_a_kill_at_any_moment_loses_nothing(attack, data, undisturbed, tmp_path, moment):
    training = Training(data, tmp_path / "checkpoints")
    assert training.run(kill_after=moment * undisturbed.seconds) in (-signal.SIGKILL, 0)
    check_recovery(attack, training, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_limit_of_the_file_size_loses_nothing(attack, data, undisturbed, tmp_path, share):
    training = Training(data, tmp_path / "checkpoints")
    limit = int(share * undisturbed.size)
    assert training.run(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) == 1, training.output
    assert "could not be saved (File too large)" in training.output and training.unfinished() == []
    check_recovery(attack, training, undisturbed)
