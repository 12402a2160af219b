"""fairseq sees the same lines and words as relumt in the files that relumt writes."""

import gzip
from itertools import pairwise

import pytest
from fairseq.file_chunker_utils import Chunker, find_offsets
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from relumt.errors import UserError
from relumt.text_files import find_text_file, normalize_file, normalize_line, read_clean_lines, read_lines

UNUSUAL_WHITESPACE = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000"


def normalize_bytes(content, folder):
    """Return the normalized lines of a file with `content`."""
    (folder / "text").write_bytes(content)
    count = normalize_file(folder / "text", folder / "normalized", lambda lines: None)
    lines = list(read_clean_lines(folder / "normalized"))
    assert count == len(lines)
    return lines


def test_carriage_returns_and_byte_order_marks_are_removed(tmp_path):
    content = b"\xef\xbb\xbfein Haus\r\nzwei\r\n\xef\xbb\xbfdrei\r\n"
    assert normalize_bytes(content, tmp_path) == ["ein Haus", "zwei", "drei"]


@pytest.mark.parametrize("character", UNUSUAL_WHITESPACE)
def test_unusual_whitespace_becomes_a_space_and_does_not_split_lines(tmp_path, character):
    content = f"eins{character}zwei {character} drei{character}\nvier\n".encode()
    assert normalize_bytes(content, tmp_path) == ["eins zwei drei", "vier"]


def test_empty_lines_and_a_last_line_without_line_end_count(tmp_path):
    assert normalize_bytes(b"eins\n\n \r\ndrei", tmp_path) == ["eins", "", "", "drei"]


texts = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\ufeff\x00" + UNUSUAL_WHITESPACE)))


@given(texts)
def test_fairseq_sees_the_words_of_a_normalized_line(line):
    normalized = normalize_line(line)
    assert tokenize_line(normalized) == (normalized.split(" ") if normalized else [])
    assert normalize_line(normalized) == normalized


@given(st.lists(texts.map(lambda line: line.replace("\n", "")), min_size=1))
def test_fairseq_sees_the_lines_of_a_normalized_file(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    normalize_bytes("".join(f"{line}\n" for line in lines).encode(), folder)
    path = str(folder / "normalized")
    seen = []
    for start, end in pairwise(find_offsets(path, 2)):
        with Chunker(path, start, end) as chunk:
            seen.extend(chunk)
    assert seen == [normalize_line(line) + "\n" for line in lines]


def test_a_gzipped_text_is_found_and_read(tmp_path):
    with gzip.open(tmp_path / "train.de.gz", "wb") as file:
        file.write("Käse\n".encode())
    assert list(read_lines(find_text_file(str(tmp_path / "train"), "de"))) == ["Käse\n"]


def test_a_damaged_gzip_file_is_a_users_error(tmp_path):
    path = tmp_path / "train.de.gz"
    path.write_bytes(gzip.compress(b"eins\nzwei\n" * 1000)[:-20])
    with pytest.raises(UserError, match=r"train\.de\.gz: damaged file after line \d+"):
        list(read_lines(path))
