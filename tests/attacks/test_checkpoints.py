"""Averages of checkpoints, and what is refused, when checkpoints are damaged or left by a crash."""

import os
from pathlib import Path

import pytest
from fairseq.checkpoint_utils import load_model_ensemble

from relumt.runs.run_config import averaged_checkpoint, best_checkpoint, has_checkpoints
from tests.attacks.attack import error_of, problem_of, relumt
from tests.attacks.training import save, weights


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    """The working folder is empty."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_commands_and_fairseq_refuse_a_damaged_checkpoint(capfd):
    """fairseq-generate and --finetune-from-model load with `load_model_ensemble`."""
    best = Path("checkpoint_best.pt")
    save(best, 4)
    best.write_bytes(best.read_bytes()[:-1])
    for load in (lambda: relumt(f"average {best} --out new.pt"), lambda: load_model_ensemble([str(best)])):
        assert "checkpoint_best.pt: not a readable checkpoint, it is truncated, damaged" in error_of(load, capfd)


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
