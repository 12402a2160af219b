"""Resuming after the last or the best checkpoint was lost or damaged, and files that do not count as checkpoints."""

import os
import subprocess
from pathlib import Path

import pytest

from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import (
    copy_checkpoint_durably,
    recover_best_checkpoint,
    recover_last_checkpoint,
    save_checkpoint_durably,
)
from relumt.runs.run_config import averaged_checkpoint, best_checkpoint, has_checkpoints
from tests.attacks.attack import snapshot
from tests.attacks.saved_checkpoints import FOLDER, are_equal, content, write_folder

pytestmark = pytest.mark.attack("checkpoints")


@pytest.mark.parametrize(
    ("damaged", "chosen"),
    [
        ([], 6),
        (["checkpoint_last.pt"], 6),
        (["checkpoint_last.pt", "checkpoint_1_6.pt"], 4),
        (["checkpoint_last.pt", "checkpoint_1_6.pt", "checkpoint_1_4.pt", "checkpoint_best.pt"], 2),
        (["checkpoint_1_6.pt"], 6),
    ],
)
@pytest.mark.parametrize("how", ["truncated", "zeroed", "removed"])
def test_training_resumes_from_the_newest_intact_checkpoint(attack, capfd, damaged, chosen, how):
    write_folder(attack.folder, FOLDER)
    for name in damaged:
        path = attack.folder / name
        if how == "removed":
            path.unlink()
            continue
        good = path.read_bytes()
        path.write_bytes(good[:5000] if how == "truncated" else good[:5000] + bytes(1000) + good[6000:])
    assert recover_last_checkpoint(attack.folder) == chosen
    assert are_equal(load_checkpoint_safely("checkpoint_last.pt")["model"], content(chosen)["model"])
    message = capfd.readouterr().err
    assert message.count("\n") == ("checkpoint_last.pt" in damaged)
    assert not message or "resuming from the newest intact checkpoint, checkpoint_" in message
    attack.outcomes.append("handled")


def test_nothing_is_deleted_if_no_checkpoint_is_intact(attack):
    write_folder(attack.folder, FOLDER)
    for path in attack.folder.glob("checkpoint*.pt"):
        if "average" not in path.name:
            path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(attack.folder)
    message = attack.reads(recover_last_checkpoint, attack.folder)
    assert message.endswith(
        "checkpoint_last.pt is damaged, and no other checkpoint in its folder is intact; restore one from a copy, or "
        "move the folder away to train from the beginning"
    )
    assert snapshot(attack.folder) == before


def test_a_save_that_was_not_copied_is_not_lost(attack, capfd):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_last.pt."""
    write_folder(attack.folder, FOLDER | {"checkpoint_1_8.pt": 8})
    assert recover_last_checkpoint(attack.folder) == 8
    assert "checkpoint_last.pt is older than another; resuming from" in capfd.readouterr().err
    copy_checkpoint_durably(attack.folder / "checkpoint_1_4.pt", attack.folder / "checkpoint_last.pt")
    assert recover_last_checkpoint(attack.folder) == 4, "a user who goes back on purpose is not overruled"
    attack.outcomes.append("handled")


@pytest.mark.parametrize("command", ["mv", "cp -p", "cp -a", "ln -sf", "ln -f"])
def test_a_user_who_goes_back_on_purpose_is_not_overruled(attack, command):
    """These commands keep the time at which the earlier checkpoint was saved."""
    write_folder(attack.folder, FOLDER | {"checkpoint_1_8.pt": 8})
    subprocess.run([*command.split(), "checkpoint_1_4.pt", "checkpoint_last.pt"], check=True, cwd=attack.folder)
    assert recover_last_checkpoint(attack.folder) == 4
    assert are_equal(load_checkpoint_safely("checkpoint_last.pt")["model"], content(4)["model"])
    attack.outcomes.append("handled")


BEST = {
    "missing": lambda path: None,
    "truncated": lambda path: path.write_bytes(b"PK"),
    "older": lambda path: save_checkpoint_durably(content(4), path),
    "the last one": lambda path: save_checkpoint_durably(content(6), path),
    "newer": lambda path: save_checkpoint_durably(content(8), path),
    "average": lambda path: save_checkpoint_durably({name: content(4)[name] for name in ("model", "cfg")}, path),
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
def test_a_best_checkpoint_that_was_not_copied_is_not_lost(attack, capfd, best, loss, problem):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_best.pt."""
    save_checkpoint_durably(content(4), attack.folder / "checkpoint_1_4.pt")
    save_checkpoint_durably(content(6, val_loss=loss, best=2.5), attack.folder / "checkpoint_last.pt")
    BEST[best](attack.folder / "checkpoint_best.pt")
    expected = snapshot(attack.folder)
    if problem:
        expected["checkpoint_best.pt"] = expected["checkpoint_last.pt"]
    recover_best_checkpoint(attack.folder)
    assert snapshot(attack.folder) == expected
    message = f"checkpoint_best.pt {problem}; replaced by checkpoint_last.pt (6 updates)" if problem else ""
    printed = capfd.readouterr().err
    assert message in printed and printed.count("\n") == bool(problem)
    attack.outcomes.append("handled")


def test_leftovers_of_killed_processes_are_removed(attack):
    write_folder(attack.folder, FOLDER)
    before = snapshot(attack.folder)
    for name in ("checkpoint_1_8.pt.tmp", "crash.pt.tmp", ".checkpoint_1_8.pt.1a2b3c4d.unfinished"):
        Path(name).write_bytes(b"part")
    Path("notes.tmp").touch()
    recover_last_checkpoint(attack.folder)
    assert snapshot(attack.folder).keys() == before.keys() | {"notes.tmp"}
    attack.outcomes.append("handled")


def test_a_crash_is_no_checkpoint(attack):
    """fairseq writes crash.pt when a step fails; it says nothing about the position in the data."""
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"crash.pt": 9, "checkpoint_average_5.pt": 9})
    assert not has_checkpoints(attack.folder)
    assert "no checkpoint" in attack.reads(best_checkpoint, attack.folder)
    assert "found 0" in attack.reads(averaged_checkpoint, attack.folder, 1)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint_average_5.pt", "crash.pt"]


def test_a_damaged_average_is_written_again(attack):
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"checkpoint_1_2.pt": 2, "checkpoint_1_4.pt": 4})
    average = averaged_checkpoint(attack.folder, 2)
    good = load_checkpoint_safely(average)["model"]
    average.write_bytes(average.read_bytes()[:-1])
    assert are_equal(load_checkpoint_safely(averaged_checkpoint(attack.folder, 2))["model"], good)
    attack.outcomes.append("handled")


def test_an_average_of_other_checkpoints_is_written_again(attack):
    """Whatever the times of the files say: the clock may have been moved back."""
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"checkpoint_1_2.pt": 2, "checkpoint_1_4.pt": 4, "checkpoint_1_6.pt": 6})
    average = averaged_checkpoint(attack.folder, 2)
    first = average.read_bytes()
    os.utime(average, (2**31, 2**31))
    assert averaged_checkpoint(attack.folder, 2).stat().st_mtime == 2**31
    (checkpoints / "checkpoint_1_6.pt").unlink()
    assert averaged_checkpoint(attack.folder, 2).read_bytes() != first
    average.with_suffix(".json").write_text("{")
    os.utime(average, (2**31, 2**31))
    assert averaged_checkpoint(attack.folder, 2).stat().st_mtime < 2**31
    attack.outcomes.append("handled")


def test_an_average_suffices_if_some_of_its_checkpoints_are_deleted(attack):
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"checkpoint_1_2.pt": 2, "checkpoint_1_4.pt": 4})
    average = averaged_checkpoint(attack.folder, 2)
    (checkpoints / "checkpoint_1_2.pt").unlink()
    assert averaged_checkpoint(attack.folder, 2) == average
    write_folder(checkpoints, {"checkpoint_1_4.pt": 8})
    assert "found 1" in attack.reads(averaged_checkpoint, attack.folder, 2), "another training saved it"
    (checkpoints / "checkpoint_1_4.pt").unlink()
    assert averaged_checkpoint(attack.folder, 2) == average
