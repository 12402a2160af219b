"""What training resumes from when checkpoints are lost, damaged, older than others, or of another model."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import (
    recover_best_checkpoint,
    recover_last_checkpoint,
    save_checkpoint_durably,
)
from relumt.runs.run_checkpoints import averaged_checkpoint, best_checkpoint, has_checkpoints
from tests.attacks.attack import error_of, problem_of, relumt, snapshot
from tests.attacks.training import bytes_of, content, save, weights
from tests.plugin.model.build import arguments

LAST, BEST = Path("checkpoint_last.pt"), Path("checkpoint_best.pt")
FOLDER = {
    "checkpoint_1_2.pt": 2,
    "checkpoint_1_4.pt": 4,
    "checkpoint_best.pt": 4,
    "checkpoint_1_6.pt": 6,
    "checkpoint_last.pt": 6,
    "checkpoint_average_5.pt": 9,
    "crash.pt": 9,
}
"""Checkpoints of a run → number of updates. The last two do not count: fairseq writes crash.pt when a step fails."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, with checkpoints of a training."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name, updates in FOLDER.items():
        save(Path(name), updates)
    return Path()


HOW = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "zeroed": lambda path: path.write_bytes((good := path.read_bytes())[:5000] + bytes(1000) + good[6000:]),
    "removed": Path.unlink,
}


@pytest.mark.parametrize(
    ("damaged", "chosen"),
    [
        ("", 6),
        ("last", 6),
        ("last 1_6", 4),
        ("last 1_6 1_4 best", 2),
        ("1_6", 6),
    ],
)
@pytest.mark.parametrize("how", HOW)
def test_training_resumes_from_the_newest_intact_checkpoint(folder, capfd, damaged, chosen, how):
    for name in damaged.split():
        HOW[how](Path(f"checkpoint_{name}.pt"))
    assert recover_last_checkpoint(folder) == chosen
    assert weights(LAST) == bytes_of(content(chosen)["model"])
    message = capfd.readouterr().err
    assert message.count("\n") == ("last" in damaged)
    assert not message or "resuming from the newest intact checkpoint, checkpoint_" in message


def test_nothing_is_deleted_if_no_checkpoint_is_intact(folder):
    for path in folder.glob("checkpoint*.pt"):
        if "average" not in path.name:
            path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(folder)
    message = problem_of(lambda: recover_last_checkpoint(folder))
    assert "is damaged, and no other checkpoint in its folder is intact; restore one from a copy, or move" in message
    assert snapshot(folder) == before


def test_commands_and_fairseq_name_the_intact_checkpoints(capfd):
    """fairseq-generate and --finetune-from-model load with `load_model_ensemble`."""
    BEST.write_bytes(BEST.read_bytes()[:-1])
    for load in (lambda: relumt(f"average {BEST} --out new.pt"), lambda: load_model_ensemble([str(BEST)])):
        error = error_of(load, capfd)
        assert "not a readable checkpoint" in error and "intact in its folder: checkpoint_last.pt" in error
        assert "crash.pt" not in error and "average_5" not in error


def test_a_save_that_was_not_copied_is_not_lost(folder, capfd):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_last.pt."""
    save(Path("checkpoint_1_8.pt"), 8)
    assert recover_last_checkpoint(folder) == 8
    assert "checkpoint_last.pt is older than another; resuming from" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["mv", "cp -p", "ln -sf", "ln -f"])
def test_a_user_who_goes_back_on_purpose_is_not_overruled(folder, command):
    """These commands keep the time at which the earlier checkpoint was saved."""
    save(Path("checkpoint_1_8.pt"), 8)
    subprocess.run([*command.split(), "checkpoint_1_4.pt", LAST], check=True)
    assert recover_last_checkpoint(folder) == 4


BESTS = {
    "missing": lambda: BEST.unlink(),
    "truncated": lambda: BEST.write_bytes(b"PK"),
    "older": lambda: save(BEST, 4),
    "the last one": lambda: save(BEST, 6),
    "newer": lambda: save(BEST, 8),
    "average": lambda: save_checkpoint_durably({name: content(4)[name] for name in ("model", "cfg")}, BEST),
}
"""What checkpoint_best.pt is → a function that writes it."""


@pytest.mark.parametrize(
    ("best", "loss", "problem"),
    [
        ("missing", 2.5, "is missing"),
        ("truncated", 2.5, "is damaged"),
        ("older", 2.5, "is older"),
        ("older", 2.6, ""),
        ("older", None, ""),
        ("the last one", 2.5, ""),
        ("newer", 2.5, ""),  # a user went back to an older checkpoint_last.pt
        ("average", 2.5, ""),
    ],
)
def test_a_best_checkpoint_that_was_not_copied_is_not_lost(folder, capfd, best, loss, problem):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_best.pt."""
    save(LAST, 6, val_loss=loss, best=2.5)
    BESTS[best]()
    expected = snapshot(folder)
    if problem:
        expected[BEST.name] = expected[LAST.name]
    recover_best_checkpoint(folder)
    assert snapshot(folder) == expected
    message = f"checkpoint_best.pt {problem}; replaced by checkpoint_last.pt (6 updates)" if problem else ""
    printed = capfd.readouterr().err
    assert message in printed and printed.count("\n") == bool(problem)


def test_leftovers_of_killed_processes_are_removed(folder):
    before = snapshot(folder)
    for name in ("checkpoint_1_8.pt.tmp", "crash.pt.tmp", ".checkpoint_1_8.pt.1a2b3c4d.unfinished", "notes.tmp"):
        Path(name).write_bytes(b"part")
    recover_last_checkpoint(folder)
    assert snapshot(folder).keys() == before.keys() | {"notes.tmp"}


def write_run(**updates: int) -> Path:
    """Write a run with the checkpoints of these names; return its folder."""
    Path("run/checkpoints").mkdir(parents=True)
    for name, count in updates.items():
        save(Path(f"run/checkpoints/{name}.pt"), count)
    return Path("run")


def test_a_crash_and_an_average_are_no_checkpoints():
    run = write_run(crash=9, checkpoint_average_5=9)
    assert not has_checkpoints(run)
    assert "no checkpoint" in problem_of(lambda: best_checkpoint(run))
    assert "found 0" in problem_of(lambda: averaged_checkpoint(run, 1))


def test_an_average_that_is_damaged_or_of_other_checkpoints_is_written_again():
    """Whatever the times of the files say: the clock may have been moved back."""
    run = write_run(checkpoint_1_2=2, checkpoint_1_4=4, checkpoint_1_6=6)
    average = averaged_checkpoint(run, 2)
    first = weights(average)
    average.write_bytes(average.read_bytes()[:-1])
    assert weights(averaged_checkpoint(run, 2)) == first
    os.utime(average, (2**31, 2**31))
    assert averaged_checkpoint(run, 2).stat().st_mtime == 2**31
    (run / "checkpoints/checkpoint_1_6.pt").unlink()
    second = weights(averaged_checkpoint(run, 2))
    assert second != first
    (run / "checkpoints/checkpoint_1_2.pt").unlink()
    assert weights(averaged_checkpoint(run, 2)) == second, "an average suffices"
    save(run / "checkpoints/checkpoint_1_4.pt", 8)
    assert "found 1" in problem_of(lambda: averaged_checkpoint(run, 2)), "another training saved it"


@cache
def fairseq_config() -> Any:
    """Return what fairseq makes of a command line, which takes a moment."""
    return convert_namespace_to_omegaconf(arguments("--arch", "reluformer"))


class FakeTrainer:
    """What `resume` needs of fairseq's trainer."""

    checkpoint_suffix = ""
    is_data_parallel_master = True
    data_parallel_world_size = 1

    def __init__(self) -> None:
        self.scheduler_steps: list[tuple[int, float]] = []
        self.cfg = fairseq_config()

    def get_num_updates(self) -> int:
        return 20

    def lr_step(self, epoch: int, val_loss: float) -> None:
        self.scheduler_steps.append((epoch, val_loss))


@pytest.fixture
def resume(monkeypatch):
    """Call what replaces fairseq's `load_checkpoint`; fairseq's own returns `extra_state`."""

    def call(extra_state=None, save_dir=".", **settings) -> FakeTrainer:
        monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (extra_state, "loaded by fairseq"))
        trainer = FakeTrainer()
        config = CheckpointConfig(save_dir=save_dir, **settings)
        assert fairseq_hooks.resume(config, trainer) == (extra_state, "loaded by fairseq")
        return trainer

    return call


@pytest.mark.parametrize(
    ("changes", "recovers"),
    [
        ({}, True),
        ({"no_last_checkpoints": True}, False),
        ({"reset_optimizer": True}, False),
        ({"no_save_optimizer_state": True}, False),
        ({"restore_file": "checkpoint_1_4.pt"}, False),
    ],
)
def test_fairseq_resumes_from_the_newest_intact_checkpoint(resume, changes, recovers):
    save(Path("checkpoint_1_6.pt"), 6, val_loss=2.5, best=2.5)
    LAST.write_bytes(b"")
    resume(**changes)
    assert (LAST.stat().st_size > 0) == recovers
    assert (load_checkpoint_safely(BEST)["extra_state"].get("best") == 2.5) == recovers


@pytest.mark.parametrize(
    ("iterations", "loss", "changes", "steps"),
    [
        (0, 2.5, {}, [(2, 2.5)]),  # killed after saving the end of epoch 2
        (7, 2.5, {}, []),
        (0, None, {}, []),
        (0, 2.5, {"reset_lr_scheduler": True}, []),
        (0, 2.5, {"reset_dataloader": True}, []),
    ],
)
def test_the_scheduler_learns_the_loss_of_an_epoch_that_ended(resume, iterations, loss, changes, steps):
    extra_state = {"train_iterator": {"epoch": 3, "iterations_in_epoch": iterations}, "val_loss": loss}
    assert resume(extra_state, **changes).scheduler_steps == steps


def test_the_clock_of_the_log_runs_after_resuming_within_an_epoch(monkeypatch):
    """fairseq would log "wall": 0 until the end, and run.json would leave out that time."""
    metrics.log_start_time("wall")
    started = metrics.get_meter("default", "wall").start_time

    def load_meters(*_, **__):
        """Do what fairseq does with the meters of a checkpoint within an epoch."""
        metrics.load_state_dict(metrics.state_dict())
        return None, "epochs"

    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", load_meters)
    fairseq_hooks.resume(CheckpointConfig(save_dir="."), FakeTrainer())
    assert metrics.get_meter("default", "wall").start_time == started
    metrics.reset()


def test_training_does_not_begin_anew_if_the_checkpoint_to_restore_is_missing(resume, capfd):
    for settings, message in (
        ({"restore_file": "nowhere.pt"}, "--restore-file nowhere.pt: no such file"),
        ({"continue_once": "nowhere.pt"}, "--continue-once nowhere.pt: no such file"),
    ):
        assert message in error_of(lambda given=settings: resume(save_dir="new", **given), capfd)
    resume(save_dir="new", restore_file="new/checkpoint_last.pt")  # the first start
