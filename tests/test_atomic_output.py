"""Output files and folders appear complete or not at all."""

import pytest

from relumt.atomic_output import atomic_file, atomic_folder, write_text_atomically
from relumt.errors import UserError


def names_below(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_a_finished_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "new folder" / "out"
    for text in ("old", "new"):
        write_text_atomically(path, text)
        assert path.read_text() == text
    assert names_below(tmp_path) == ["new folder", "out"]


def test_an_interrupted_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as unfinished:
        unfinished.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names_below(tmp_path) == ["out"]


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    with pytest.raises(UserError, match="expected a file, found a folder"), atomic_file(tmp_path):
        pass


def test_a_finished_folder_replaces_the_old_one(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    with atomic_folder(out) as stage:
        (stage.result / "new").touch()
        (stage.scratch / "temporary").touch()
        assert (out / "old").exists()
    assert names_below(tmp_path) == ["new", "out"]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
def test_an_interrupted_folder_leaves_everything_unchanged(tmp_path, reason):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    for out in (tmp_path / "out", tmp_path / "missing" / "parent" / "out"):
        with pytest.raises(reason), atomic_folder(out) as stage:
            (stage.result / "new").touch()
            raise reason
    assert names_below(tmp_path) == ["old", "out"]
