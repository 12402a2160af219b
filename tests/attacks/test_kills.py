"""Every stage, killed or failing where it writes: nothing is half-written, and a second start ends as one alone.

A forked process does the work. In it, a step of writing fails (a write to a checkpoint, flushing to the disk, renaming,
copying), or the process is killed there.
"""

import errno
import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from relumt.plugin.checkpoints.folder import LAST_CHECKPOINT
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import (
    recover_last_checkpoint,
    save_checkpoint_durably,
)
from relumt.runs.record import find_record
from tests.attacks.attack import relumt, snapshot
from tests.attacks.training import UPDATES, Training, run_forked, save, write_training_data
from tests.plugin.model.build import write_checkpoint
from tests.runs.cases import replace_fairseq

STEPS = {"fsync": (os, "fsync"), "rename": (os, "replace"), "folder": (os, "rename"), "copy": (shutil, "copyfile")}
"""Step of writing → the function that performs it. The step "write" is a write to the file of a checkpoint."""


@dataclass
class Fault:
    """Makes a call fail after `left` successful ones, and the later calls if it is `permanent`."""

    left: int
    permanent: bool
    action: Callable[[], None]

    def pass_or_fail(self) -> None:
        """Count a call, and fail if it is its turn."""
        self.left -= 1
        if self.left == -1 or (self.left < 0 and self.permanent):
            self.action()


def inject(step: str, fault: Fault) -> None:
    """Let a step of writing fail in this process."""
    if step == "write":
        save = torch.save

        def write(content: Any, file: BinaryIO) -> None:
            file.write(b"half of it")
            file.flush()
            fault.pass_or_fail()
            file.truncate(0)
            file.seek(0)
            save(content, file)

        torch.save = write
        return
    owner, name = STEPS[step]
    function = getattr(owner, name)

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        fault.pass_or_fail()
        return function(*arguments, **keywords)

    setattr(owner, name, faulty)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def fail_with(code: int) -> None:
    raise OSError(code, os.strerror(code))


def counted(work: Callable[[Callable[[], None]], int]) -> dict[str, int]:
    """Let a process do its work undisturbed; return how often it performs each step."""
    calls = {step: multiprocessing.Value("i", 0) for step in ("write", *STEPS)}

    def count_calls() -> None:
        for step, number in calls.items():
            inject(step, Fault(0, True, lambda number=number: setattr(number, "value", number.value + 1)))

    assert work(count_calls) == 0
    return {step: number.value for step, number in calls.items()}


# Commands

TEXTS = " ".join(f"--{split} corpus/{split}" for split in ("train", "valid", "test"))
FILTER = "filter --checkpoint model.pt --data bin --src corpus/train.de --tgt corpus/train.en --by cross_entropy"
COMMANDS = {
    "prepare": f"prepare --src de --tgt en {TEXTS} --out new --tokenized-input --vocab-size 60",
    "analyze": "analyze model.pt --data bin --numbers-only --out new",
    "filter": f"{FILTER} --keep 0.5 --out kept",
    "average": "average one.pt other.pt --out new.pt",
    "export": "export model.pt --to safetensors --data bin --out new",
    "train and evaluate": "run --train --evaluate -- small stock",
}


def start(command: str, prepare: Callable[[], None] = lambda: None) -> int:
    """Run a command in a forked process after `prepare` in it; return its exit status."""
    return run_forked(lambda: (prepare(), relumt(command)))


def outcome() -> dict[str, object]:
    """Return what a command has written in the working folder."""
    record = find_record(Path("runs/small/stock/1"))
    found: dict[str, object] = dict(snapshot(Path()))
    # what was left of a killed process is hidden; the record and the log say when the process started
    found = {name: text for name, text in found.items() if "/." not in f"/{name}" and "small/stock" not in name}
    return found if record is None else found | {"run": (record.training, record.evaluations)}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("work", "constant_environment")
def test_a_command_that_is_killed_leaves_nothing_half_written(name, tmp_path, monkeypatch):
    replace_fairseq(monkeypatch)
    for path, updates in (("one.pt", 2), ("other.pt", 4)):
        save(Path(path), updates)
    shutil.copytree(".", tmp_path / "before")
    before = outcome()
    calls = counted(partial(start, COMMANDS[name]))
    expected = outcome()
    assert expected != before and sum(calls.values()) > 0
    for number, (step, at) in enumerate((step, count // 2) for step, count in calls.items() if count):
        monkeypatch.chdir(shutil.copytree(tmp_path / "before", tmp_path / f"killed {number}"))
        fault = Fault(at, True, partial(send, signal.SIGKILL))
        assert start(COMMANDS[name], partial(inject, step, fault)) == -signal.SIGKILL
        left = outcome()
        assert name == "train and evaluate" or left.items() <= expected.items(), f"half-written after {step} {at}"
        assert start(COMMANDS[name]) == 0 or left == expected  # some refuse to replace what is there
        assert outcome() == expected, f"another result after {step} {at}"


# Trainings


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_training_data(tmp_path_factory.mktemp("data") / "data-bin")


@dataclass(frozen=True)
class Undisturbed:
    """A training without faults, how often it performs each step of saving, and how many seconds it takes."""

    training: Training
    calls: dict[str, int]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> Callable[..., Undisturbed]:
    """Return a function that trains with further flags, once for each."""
    finished: dict[tuple[str, ...], Undisturbed] = {}

    def train(*flags: str) -> Undisturbed:
        if flags not in finished:
            training = Training(data, tmp_path_factory.mktemp("undisturbed") / "checkpoints", flags)
            begin = time.monotonic()
            calls = counted(training.run)
            finished[flags] = Undisturbed(training, calls, time.monotonic() - begin)
        return finished[flags]

    return train


def check_recovery(training: Training, undisturbed: Undisturbed) -> None:
    """Check that a fault left only intact checkpoints, and that training resumes from the newest one to the end.

    Afterwards the best and the last checkpoint are those of an undisturbed training.
    """
    training.updates()
    recover_last_checkpoint(training.folder)
    last = training.folder / LAST_CHECKPOINT
    saved = load_checkpoint_safely(last)["optimizer_history"][-1]["num_updates"] if last.exists() else 0
    if saved < UPDATES:  # fairseq would train for one more update, hence scripts/train.sh does not start it either
        assert training.run() == 0, training.output
        resumed = re.findall(r"Loaded checkpoint .* @ (\d+) updates", training.output)
        assert [int(updates) for updates in resumed[-1:]] == ([saved] if saved else [])
    assert "Traceback" not in training.output
    assert training.state() == undisturbed.training.state()
    assert training.unfinished() == []


FAULTS = [
    ("copy", "kill", 0.75),  # the last checkpoint_best.pt: no later one replaces it
    ("write", "ENOSPC", 0.5),
    *(
        pytest.param(step, action, random.Random(f"{step} {action} {number}").random(), marks=pytest.mark.slow)
        for step in ("write", "fsync", "rename", "copy")
        for action in ("kill", "EIO")
        for number in range(3)
    ),
]
"""What fails, how, and when: as a fraction of the calls of a training."""


@pytest.mark.parametrize(("step", "action", "when"), FAULTS)
def test_a_fault_while_saving_loses_nothing(data, undisturbed, tmp_path, step, action, when):
    training, alone = Training(data, tmp_path / "checkpoints"), undisturbed()
    is_kill = action == "kill"
    act = partial(send, signal.SIGKILL) if is_kill else partial(fail_with, getattr(errno, action))
    status = training.run(partial(inject, step, Fault(int(when * alone.calls[step]), True, act)))
    assert status == (-signal.SIGKILL if is_kill else 1), training.output
    if not is_kill:
        reason = os.strerror(getattr(errno, action))
        assert f"could not be saved ({reason}); the checkpoints saved before are intact" in training.output
        assert training.unfinished() == []
    check_recovery(training, alone)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["reluformer", "rela", "mechanism_transformer"])
@pytest.mark.parametrize("moment", [0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
def test_a_kill_at_any_moment_loses_nothing(data, undisturbed, tmp_path, model, moment):
    alone = undisturbed("--arch", model)
    training = Training(data, tmp_path / "checkpoints", alone.training.flags)
    assert training.run(kill_after=moment * alone.seconds) in (-signal.SIGKILL, 0)
    check_recovery(training, alone)


def test_training_does_not_go_on_with_another_model(data, undisturbed):
    """The parameters of softmax and ReLUFormer have the same names and shapes, so fairseq would load them."""
    folder = undisturbed().training.folder
    last, before = folder / LAST_CHECKPOINT, snapshot(folder)
    refused = Training(data, folder, ("--arch", "mechanism_transformer"))
    assert refused.run() == 2
    expected = f"{last}: belongs to another model, with attention at the site 'encoder' relu (now softmax)"
    assert expected in refused.output and "Traceback" not in refused.output
    assert snapshot(folder) == before


def test_a_new_training_takes_weights_but_not_the_schedule_of_another_model(data, tmp_path):
    """reduce_lr_on_plateau would divide the learning rate by 10, since no epoch reaches the other's loss."""
    pretrained = write_checkpoint(tmp_path / "pretrained", "--attention", "softmax")
    checkpoint = load_checkpoint_safely(pretrained)
    position = {"epoch": 3, "iterations_in_epoch": 0, "version": 2}
    checkpoint["extra_state"] |= {"train_iterator": position, "val_loss": 0.0, "best": 0.0}
    save_checkpoint_durably(checkpoint, pretrained)
    flags = ("--finetune-from-model", str(pretrained), "--lr-scheduler", "reduce_lr_on_plateau")
    training = Training(data, tmp_path / "new", flags)
    assert training.run() == 0, training.output
    assert f"loading pretrained model from {pretrained}" in training.output
    resumed = load_checkpoint_safely(training.folder / LAST_CHECKPOINT)
    assert resumed["last_optimizer_state"]["param_groups"][0]["lr"] == 1e-2
