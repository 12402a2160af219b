"""Output files and folders appear complete or not at all."""

import os

import pytest

from relumt.files import atomic_file, atomic_folder, write_text_atomically


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
    with pytest.raises(IsADirectoryError), atomic_file(tmp_path):
        pass


def test_a_stream_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text_atomically(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_what_a_killed_process_left_is_replaced(tmp_path):
    folder = tmp_path / "folder"
    staging = tmp_path / ".folder.unfinished"
    (staging / "replaced").mkdir(parents=True)  # killed between the two renames
    (staging / "replaced" / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic_folder(folder):
        raise KeyboardInterrupt
    assert names_below(folder) == ["old"] and not staging.exists()


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
    for out in (tmp_path / "out", tmp_path / "other"):
        with pytest.raises(reason), atomic_folder(out) as stage:
            (stage.result / "new").touch()
            raise reason
    assert names_below(tmp_path) == ["old", "out"]
