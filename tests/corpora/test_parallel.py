"""Chunks of files are processed in order, and what is written does not depend on the number of processes."""

import os
import signal
from functools import partial

import pytest

from relumt.corpora import parallel
from relumt.corpora.parallel import map_chunks, rewrite_file, track
from relumt.errors import AttemptFailedError

LINES = [f"Zeile {number} ä" * (number % 7) for number in range(1000)]


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "CHUNK_BYTES", 500)
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def swap_case(lines):
    return [line.swapcase() for line in lines]


def kill_at(victim, lines):
    if victim in lines:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("content", ["", "\n", "one\n", "\n\n"])
def test_chunks_of_short_texts(tmp_path, content):
    (tmp_path / "text").write_text(content)
    assert [line for lines in map_chunks(list, [tmp_path / "text"]) for line in lines] == content.split("\n")[:-1]


@pytest.mark.parametrize("processes", [1, 3])
def test_rewriting_keeps_the_order_of_lines(text, tmp_path, monkeypatch, processes):
    monkeypatch.setattr(parallel, "num_processes", lambda paths: processes)
    progress = []
    rewrite_file(text, tmp_path / "new", swap_case, progress.append)
    assert (tmp_path / "new").read_text(encoding="utf-8") == "".join(f"{line.swapcase()}\n" for line in LINES)
    assert sum(progress) == len(LINES) and len(progress) > 20


def test_a_killed_worker_is_reported(text, monkeypatch):
    monkeypatch.setattr(parallel, "num_processes", lambda paths: 2)
    with pytest.raises(AttemptFailedError, match="a worker process was killed"):
        list(map_chunks(partial(kill_at, LINES[600]), [text]))


def test_short_texts_start_no_process(text):
    assert set(map_chunks(lambda lines: os.getpid(), [text])) == {os.getpid()}


def test_without_a_terminal_a_line_follows_when_the_time_has_doubled(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 10.0, 15.0, 20.0, 50.0, 100.0])  # the start, five items of six, the end
    monkeypatch.setattr(parallel.time, "monotonic", lambda: next(clock))
    assert list(track(iter(range(5)), "read", 6)) == list(range(5))
    assert capsys.readouterr().err.splitlines() == [
        "relumt: read: 33%, 20 s left",
        "relumt: read: 67%, 10 s left",
        "relumt: read: 83%, 10 s left",
        "relumt: read (100.0 s)",
    ]
