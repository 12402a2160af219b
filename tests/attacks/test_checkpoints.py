"""What training resumes from when checkpoints are lost, damaged or older than others."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.recovery import (
    recover_last_checkpoint,
)
from relumt.runs.run_config import averaged_checkpoint, best_checkpoint, has_checkpoints
from tests.attacks.attack import error_of, problem_of, relumt, snapshot
from tests.attacks.training import OPTIMIZER, bytes_of, content, save, weights
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
    recover_last_checkpoint(folder, OPTIMIZER)
    assert weights(LAST) == bytes_of(content(chosen)["model"])
    message = capfd.readouterr().err
    assert message.count("\n") == ("last" in damaged)
    assert not message or "resuming from the newest intact checkpoint, checkpoint_" in message


def test_nothing_is_deleted_if_no_checkpoint_is_intact(folder):
    for path in folder.glob("checkpoint*.pt"):
        if "average" not in path.name:
            path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(folder)
    message = problem_of(lambda: recover_last_checkpoint(folder, OPTIMIZER))
    assert "is damaged, and no other checkpoint in its folder is intact; restore one from a copy, or move" in message
    assert snapshot(folder) == before


def test_commands_and_fairseq_refuse_a_damaged_checkpoint(capfd):
    """fairseq-generate and --finetune-from-model load with `load_model_ensemble`."""
    BEST.write_bytes(BEST.read_bytes()[:-1])
    for load in (lambda: relumt(f"average {BEST} --out new.pt"), lambda: load_model_ensemble([str(BEST)])):
        assert "checkpoint_best.pt: not a readable checkpoint, it is truncated, damaged" in error_of(load, capfd)


def test_an_intact_last_checkpoint_is_taken_whatever_else_there_is(folder):
    """A process was killed before it copied a newer checkpoint, or a user went back: the updates are made again."""
    save(Path("checkpoint_1_8.pt"), 8)
    recover_last_checkpoint(folder, OPTIMIZER)
    assert weights(LAST) == bytes_of(content(6)["model"])


def test_leftovers_of_killed_processes_are_removed(folder):
    before = snapshot(folder)
    for name in (".crash.pt.99.unfinished", ".checkpoint_1_8.pt.1a2b3c4d.unfinished", "notes.tmp"):
        Path(name).write_bytes(b"part")
    recover_last_checkpoint(folder, OPTIMIZER)
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
    optimizer = type(OPTIMIZER, (), {})()
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
        ({"restore_file": "checkpoint_1_4.pt"}, False),
    ],
)
def test_fairseq_resumes_from_the_newest_intact_checkpoint(resume, changes, recovers):
    save(Path("checkpoint_1_6.pt"), 6, val_loss=2.5, best=2.5)
    LAST.write_bytes(b"")
    resume({"train_iterator": {"epoch": 1, "iterations_in_epoch": 1}}, **changes)
    assert (LAST.stat().st_size > 0) == recovers


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
