"""Chunks of files are processed in order, and what is written does not depend on the number of processes."""

import os
import signal
from functools import partial

import pytest

from relumt.errors import AttemptFailedError
from relumt.prep import workers
from relumt.prep.workers import Rewriting, map_chunks, map_in_order, rewrite_files, split_file

LINES = [f"Zeile {number} ä" * (number % 7) for number in range(1000)]


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "CHUNK_BYTES", 500)
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def read_lines(chunk):
    return chunk.read_lines()


def swap_case(lines):
    return [line.swapcase() for line in lines]


def kill_at(victim, number):
    if number == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_chunks_are_whole_lines(text):
    chunks = list(split_file(text))
    assert len(chunks) > 20
    assert [line for chunk in chunks for line in chunk.read_lines()] == LINES


@pytest.mark.parametrize("content", ["", "\n", "one\n", "\n\n"])
def test_chunks_of_short_texts(tmp_path, content):
    (tmp_path / "text").write_text(content)
    lines = [line for result in map_chunks(read_lines, [tmp_path / "text"]) for line in result]
    assert lines == content.split("\n")[:-1]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_rewriting_keeps_the_order_of_lines(text, tmp_path, monkeypatch, processes):
    monkeypatch.setattr(workers, "num_processes", lambda paths: processes)
    empty = tmp_path / "empty"
    empty.touch()
    outputs = tmp_path / "first", tmp_path / "second"
    progress = []
    rewrite_files([Rewriting(text, outputs[0], swap_case), Rewriting(empty, outputs[1], swap_case)], progress.append)
    assert outputs[0].read_text(encoding="utf-8") == "".join(f"{line.swapcase()}\n" for line in LINES)
    assert outputs[1].read_bytes() == b""
    assert sum(progress) == len(LINES)


def test_few_tasks_are_taken_before_their_results_are_used():
    taken = []
    results = map_in_order(abs, (taken.append(number) or number for number in range(100)), 2)
    assert next(results) == 0
    assert len(taken) == 2 * workers.CHUNKS_PER_PROCESS
    assert list(results) == list(range(1, 100))


def test_a_killed_worker_is_reported():
    with pytest.raises(AttemptFailedError, match="a worker process was killed"):
        list(map_in_order(partial(kill_at, 3), range(50), 2))


def test_short_texts_start_no_process(text):
    assert workers.num_processes([text]) == 1
    assert set(map_chunks(lambda chunk: os.getpid(), [text])) == {os.getpid()}
