"""Output files and folders: what they must not replace, and what a fault leaves."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relumt import files
from relumt.files import atomic_folder, write_text_atomically
from tests.attacks.attack import ROOT

pytestmark = pytest.mark.attack("faults")


def write(path: Path) -> None:
    write_text_atomically(path, "new")


def write_folder(path: Path) -> None:
    with atomic_folder(path) as stage:
        (stage.result / "new").touch()


@pytest.mark.parametrize("link", [False, True])
def test_the_null_device_stays(attack, link):
    path = Path("link" if link else "/dev/null")
    if link:
        path.symlink_to("/dev/null")
    assert attack.reads(write, path) == ""
    assert path.is_char_device() and stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_is_a_failure(attack):
    with pytest.raises(OSError, match="No space left"):
        attack.reads(write, Path("/dev/full"))
    attack.outcomes.append("failed")


WRITE = "from pathlib import Path; from relumt.files import write_text_atomically as w; w(Path({!r}), 'new')"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("target", ["pipe", "file", "append"])
def test_a_name_of_stdout_is_written_to(attack, name, target):
    Path("log").write_text("old ")
    command = [sys.executable, "-c", WRITE.format(name)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with Path("log").open("a" if target == "append" else "w") as log:
        stdout = subprocess.PIPE if target == "pipe" else log
        ended = subprocess.run(command, stdout=stdout, env=environment, check=True)
    attack.outcomes.append("handled")
    result = ended.stdout.decode() if target == "pipe" else Path("log").read_text()
    assert result == ("old new" if target == "append" else "new")
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize("name", ["x" * 255, "-x", "a\nb", "[a]*", ".hidden", " "])
def test_files_of_odd_names(attack, name):
    for _ in range(2):
        assert attack.reads(write, Path(name)) == ""
    assert os.listdir() == [name] and Path(name).read_text() == "new"


def test_a_file_has_the_permissions_of_other_files(attack):
    assert attack.reads(write, Path("out")) == ""
    Path("other").touch()
    assert Path("out").stat().st_mode == Path("other").stat().st_mode


@pytest.mark.parametrize("function", ["sync", "os.fsync", "Path.replace"])
def test_a_fault_before_the_rename_keeps_the_old_file(attack, monkeypatch, function):
    Path("out").write_text("old")

    def fail(*_):
        raise OSError(errno.EIO, "as if")

    target = {"sync": (files, "sync"), "os.fsync": (os, "fsync"), "Path.replace": (Path, "replace")}[function]
    monkeypatch.setattr(*target, fail)
    with pytest.raises(OSError, match="as if"):
        attack.reads(write, Path("out"))
    attack.outcomes.append("failed")
    assert os.listdir() == ["out"] and Path("out").read_text() == "old"


@pytest.mark.parametrize("call", [1, 2])
def test_a_fault_while_folders_are_renamed_keeps_the_old_one(attack, monkeypatch, call):
    Path("out").mkdir()
    Path("out/old").touch()
    rename, calls = Path.rename, []

    def fail(path, target):
        calls.append(path)
        if len(calls) == call:
            raise OSError(errno.EIO, "as if")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="as if"):
        attack.reads(write_folder, Path("out"))
    attack.outcomes.append("failed")
    assert os.listdir() == ["out"] and os.listdir("out") == ["old"]


def test_everything_is_on_disk_before_it_replaces_anything(attack, monkeypatch):
    events = []
    sync, rename, replace = files.sync, Path.rename, Path.replace
    monkeypatch.setattr(files, "sync", lambda path: (events.append(path.resolve().name), sync(path)))
    monkeypatch.setattr(Path, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    monkeypatch.setattr(Path, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    assert attack.reads(write, Path("out")) == ""
    assert events[1:] == ["replace", Path.cwd().name]
    events.clear()
    assert attack.reads(write_folder, Path("folder")) == ""
    assert events == ["new", "result", "rename", Path.cwd().name]
