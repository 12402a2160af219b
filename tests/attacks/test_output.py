"""Output files and folders: what they must not replace, two writers at once, and what dead processes leave."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt import atomic_output
from relumt.atomic_output import atomic_file, atomic_folder, write_text_atomically
from tests.attacks.attack import ROOT

pytestmark = pytest.mark.attack("faults")


def write(path: Path) -> None:
    write_text_atomically(path, "new")


def write_folder(path: Path) -> None:
    with atomic_folder(path) as stage:
        (stage.result / "new").touch()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


@pytest.mark.parametrize("make", [Path.mkdir, make_socket, os.mkfifo, lambda path: path.symlink_to(".")])
def test_a_file_does_not_replace_what_is_none(attack, make: Callable):
    make(Path("out"))
    kind = stat.S_IFMT(Path("out").lstat().st_mode)
    assert attack.reads(write, Path("out")).startswith("out: ")
    assert stat.S_IFMT(Path("out").lstat().st_mode) == kind and os.listdir() == ["out"]


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


def test_a_pipe_receives_the_content(attack):
    os.mkfifo("pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_text()))
    reader.start()
    while attack.reads(write, Path("pipe")):  # until the reader has opened it
        pass
    reader.join(10)
    assert received == ["new"] and stat.S_ISFIFO(os.stat("pipe").st_mode)


WRITE = "from pathlib import Path; from relumt.atomic_output import write_text_atomically as w; w(Path({!r}), 'new')"


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


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "-x", "a\nb", "\udcff", "[a]*", ".hidden", " "])
def test_files_of_odd_names(attack, name):
    for _ in range(2):
        assert attack.reads(write, Path(name)) == ""
    assert os.listdir() == [name] and Path(name).read_text() == "new"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "-x", "[a]*", ".hidden", " "])
def test_folders_of_odd_names(attack, name):
    for _ in range(2):
        assert attack.reads(write_folder, Path(name)) == ""
    assert os.listdir() == [name] and os.listdir(name) == ["new"]


def test_a_file_has_the_permissions_of_other_files(attack):
    assert attack.reads(write, Path("out")) == ""
    Path("other").touch()
    assert Path("out").stat().st_mode == Path("other").stat().st_mode


# Leftovers


def test_files_of_dead_processes_are_removed_and_those_of_living_ones_are_not(attack):
    Path(".out.0123abcd.unfinished").write_text("dead")
    Path(".outer.0123abcd.unfinished").write_text("of another file")
    with atomic_file(Path("out")) as living:
        living.write_text("living")
        assert attack.reads(write, Path("out")) == ""
        assert sorted(os.listdir()) == sorted([living.name, ".outer.0123abcd.unfinished", "out"])
    assert Path("out").read_text() == "living"


def test_leftovers_that_are_no_files_stay(attack):
    Path(".out.0.unfinished").mkdir()
    Path(".out.1.unfinished").symlink_to("/dev/null")
    assert attack.reads(write, Path("out")) == ""
    assert sorted(os.listdir()) == [".out.0.unfinished", ".out.1.unfinished", "out"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_of_a_dead_process_is_removed(attack, replaced):
    for name in ("result", "scratch"):
        Path(f".out.unfinished/{name}/deep").mkdir(parents=True)
    if replaced:  # it was killed between the two renames
        Path(".out.unfinished/replaced").mkdir()
        Path(".out.unfinished/replaced/old").touch()

    def fail():
        with atomic_folder(Path("out")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack.reads(fail)
    attack.outcomes.append("handled")
    assert os.listdir() == (["out"] if replaced else [])
    assert not replaced or os.listdir("out") == ["old"]


def test_a_folder_of_a_living_process_is_refused(attack):
    with atomic_folder(Path("out")) as stage:
        (stage.result / "first").touch()
        assert "another process is writing it" in attack.reads(write_folder, Path("out"))
    assert os.listdir("out") == ["first"] and os.listdir() == ["out"]


@pytest.mark.parametrize("plant", [Path.touch, lambda path: path.symlink_to("/tmp"), os.mkfifo])
def test_something_else_in_place_of_the_staging_folder(attack, plant: Callable):
    plant(Path(".out.unfinished"))
    with pytest.raises(OSError, match="unfinished"):
        attack.reads(write_folder, Path("out"))
    attack.outcomes.append("failed")
    assert os.listdir() == [".out.unfinished"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks(attack, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    Path(".out.0123abcd.unfinished").write_text("perhaps of a living process")
    assert attack.reads(write, Path("out")) == "" and len(os.listdir()) == 2
    assert attack.reads(write_folder, Path("folder")) == ""
    Path(".folder.unfinished").mkdir()
    assert "another process is writing it" in attack.reads(write_folder, Path("folder"))


def write_often(path: Path, text: str) -> None:
    for _ in range(50):
        write_text_atomically(path, text * 10_000)


def test_two_processes_write_one_file(attack):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(Path("out"), text)) for text in "ab"]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if Path("out").exists():
            seen.add(Path("out").read_text())
    assert [writer.exitcode for writer in writers] == [0, 0]
    attack.outcomes.append("handled")
    assert seen <= {"a" * 10_000, "b" * 10_000} and os.listdir() == ["out"]


# Faults


@pytest.mark.parametrize("function", ["sync", "os.fsync", "Path.replace"])
def test_a_fault_before_the_rename_keeps_the_old_file(attack, monkeypatch, function):
    Path("out").write_text("old")

    def fail(*_):
        raise OSError(errno.EIO, "as if")

    target = {"sync": (atomic_output, "sync"), "os.fsync": (os, "fsync"), "Path.replace": (Path, "replace")}[function]
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
    sync, rename, replace = atomic_output.sync, Path.rename, Path.replace
    monkeypatch.setattr(atomic_output, "sync", lambda path: (events.append(path.resolve().name), sync(path)))
    monkeypatch.setattr(Path, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    monkeypatch.setattr(Path, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    assert attack.reads(write, Path("out")) == ""
    assert events[1:] == ["replace", Path.cwd().name]
    events.clear()
    shutil.rmtree("out", ignore_errors=True)
    assert attack.reads(write_folder, Path("folder")) == ""
    assert events == ["new", "result", "rename", Path.cwd().name]
