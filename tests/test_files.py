"""Files appear complete or not at all, and fairseq sees the same lines and words in them as relumt."""

import errno
import gzip
import os
import stat
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from fairseq.file_chunker_utils import Chunker, find_offsets
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from relumt import files
from relumt.corpora.bitext import find_text_file
from relumt.errors import UserError
from relumt.files import (
    atomic_file,
    atomic_files,
    encode_json,
    normalize_file,
    normalize_line,
    read_clean_lines,
    read_json,
    read_lines,
    write_text_atomically,
)
from relumt.folders import atomic_folder


def names_below(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_a_finished_file_replaces_the_old_one_once_it_is_on_disk(tmp_path, monkeypatch):
    events, sync, replace = [], files.sync, Path.replace
    monkeypatch.setattr(files, "sync", lambda path: (events.append(path.suffix), sync(path)))
    monkeypatch.setattr(Path, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    path = tmp_path / "folder" / "out"
    for text in ("old", "new"):
        write_text_atomically(path, text)
        assert path.read_text() == text
    assert names_below(tmp_path) == ["folder", "out"]
    assert events == [".unfinished", "replace", ""] * 2


def test_a_file_system_need_not_sync_folders_but_must_sync_files(tmp_path, monkeypatch):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) or failing_files:
            raise OSError(errno.EINVAL, "Invalid argument")

    failing_files = False
    monkeypatch.setattr(os, "fsync", fsync)
    write_text_atomically(tmp_path / "file", "text")
    with atomic_folder(tmp_path / "folder") as stage:
        (stage.result / "inner").mkdir()
    assert names_below(tmp_path) == ["file", "folder", "inner"]
    failing_files = True
    with pytest.raises(OSError, match="Invalid argument"):
        write_text_atomically(tmp_path / "file", "other")
    assert (tmp_path / "file").read_text() == "text"


def test_an_interrupted_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as unfinished:
        unfinished.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and names_below(tmp_path) == ["out"]


def test_a_folder_and_a_device_are_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_text_atomically(tmp_path, "text")
    write_text_atomically(Path("/dev/null"), "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("failing", range(2))
def test_files_that_belong_together_are_never_new_beside_old(tmp_path, monkeypatch, failing):
    paths, replace, calls = [tmp_path / "de", tmp_path / "en"], Path.replace, []

    def interrupted(path, target):
        calls.append(path)
        if len(calls) > failing:
            raise KeyboardInterrupt
        return replace(path, target)

    for path in paths:
        path.write_text("old")
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_files(paths) as unfinished:
        for path in unfinished:
            path.write_text("new")
    assert [path.read_text() for path in paths if path.exists()] == ["old" if failing == 0 else "new"]


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
    for out in (tmp_path / "out", tmp_path / "missing" / "other"):
        with pytest.raises(reason), atomic_folder(out) as stage:
            (stage.result / "new").touch()
            raise reason
    assert names_below(tmp_path) == ["old", "out"]


def test_what_a_killed_process_left_is_replaced(tmp_path):
    staging = tmp_path / ".folder.unfinished"
    (staging / "replaced").mkdir(parents=True)  # killed between the two renames
    (staging / "replaced" / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "folder"):
        raise KeyboardInterrupt
    assert names_below(tmp_path / "folder") == ["old"] and not staging.exists()


def test_a_folder_that_another_process_is_making_is_refused(tmp_path):
    out = tmp_path / "out"
    with atomic_folder(out) as stage:
        (stage.result / "file").touch()
        with pytest.raises(UserError, match="out: another process is making it"), atomic_folder(out):
            pass
    assert names_below(tmp_path) == ["file", "out"]


def test_a_folder_that_cannot_be_written_or_in_which_one_works_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for out, message in (("file/out", "is not a writable folder"), (".", "this is the working folder")):
        with pytest.raises(UserError, match=message), atomic_folder(Path(out)):
            pass
    assert names_below(tmp_path) == ["file"]


@dataclass
class Content:
    name: str
    number: int = 0


def test_json_is_read_as_it_was_written_or_refused(tmp_path):
    path = tmp_path / "content.json"
    path.write_text(encode_json(Content("ü", 3)))
    assert read_json(path, Content, "write it again") == Content("ü", 3)
    path.write_text('{"name": 1}')
    message = r"content\.json: not in the expected format \(Expected `str`, got `int` - at `\$\.name`\); write it again"
    with pytest.raises(UserError, match=message):
        read_json(path, Content, "write it again")


# Text

UNUSUAL_WHITESPACE = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000"


def normalize_bytes(content, folder):
    """Return the normalized lines of a file with `content`."""
    (folder / "text").write_bytes(content)
    count = normalize_file(folder / "text", folder / "normalized", lambda lines: None)
    lines = list(read_clean_lines(folder / "normalized"))
    assert count == len(lines)
    return lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"\xef\xbb\xbfein Haus\r\nzwei\r\n\xef\xbb\xbfdrei\r\n", ["ein Haus", "zwei", "drei"]),
        (f"a{' b'.join(UNUSUAL_WHITESPACE)} c\nd\n".encode(), ["a" + " b" * 11 + " c", "d"]),
        (b"eins\n\n \r\ndrei", ["eins", "", "", "drei"]),
    ],
)
def test_lines_are_normalized_and_stay_lines(tmp_path, content, lines):
    assert normalize_bytes(content, tmp_path) == lines


texts = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\ufeff\x00" + UNUSUAL_WHITESPACE)), max_size=20
)


@given(texts)
def test_fairseq_sees_the_words_of_a_normalized_line(line):
    normalized = normalize_line(line)
    assert tokenize_line(normalized) == (normalized.split(" ") if normalized else [])
    assert normalize_line(normalized) == normalized


@given(st.lists(texts.map(lambda line: line.replace("\n", "")), min_size=1, max_size=5))
def test_fairseq_sees_the_lines_of_a_normalized_file(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    normalize_bytes("".join(f"{line}\n" for line in lines).encode(), folder)
    path = str(folder / "normalized")
    seen = []
    for start, end in pairwise(find_offsets(path, 2)):
        with Chunker(path, start, end) as chunk:
            seen.extend(chunk)
    assert seen == [normalize_line(line) + "\n" for line in lines]


def test_a_gzipped_text_is_found_and_read_and_a_damaged_one_refused(tmp_path):
    content = gzip.compress("Käse\n".encode() * 1000)
    (tmp_path / "train.de.gz").write_bytes(content)
    assert list(read_lines(find_text_file(str(tmp_path / "train"), "de"))) == ["Käse\n"] * 1000
    (tmp_path / "train.de.gz").write_bytes(content[:-10])
    with pytest.raises(UserError, match=r"train\.de\.gz: damaged file after line \d+"):
        list(read_lines(tmp_path / "train.de.gz"))
    (tmp_path / "train.de.gz").write_bytes(gzip.compress("a\nKäse\n".encode("latin-1")))
    with pytest.raises(UserError, match=r"train\.de\.gz:2: not valid UTF-8 \(byte 0xe4 at position 2"):
        list(read_lines(tmp_path / "train.de.gz"))
