import gzip
import pickle
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.errors import UserError
from relumt.prep.tokenization import lowercase, tokenize
from relumt.text_files import find_text_file, normalize_file, normalize_line, read_clean_lines, read_lines, rewrite_file

BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000"


def normalised(path, tmp_path):
    count = normalize_file(path, tmp_path / "normalised", lambda lines: None)
    lines = list(read_clean_lines(tmp_path / "normalised"))
    assert count == len(lines)
    return lines


def test_crlf_and_byte_order_marks_vanish(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfein Haus\r\nzwei\r\n\xef\xbb\xbfdrei\r\n")
    assert normalised(path, tmp_path) == ["ein Haus", "zwei", "drei"]


@pytest.mark.parametrize("character", BREAKS)
def test_odd_white_space_neither_splits_lines_nor_reaches_fairseq(tmp_path, character):
    path = tmp_path / "text"
    path.write_bytes(f"eins{character}zwei {character} drei{character}\nvier\n".encode())
    assert normalised(path, tmp_path) == ["eins zwei drei", "vier"]


def test_last_line_needs_no_line_end_and_empty_lines_count(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"eins\n\n \r\ndrei")
    assert normalised(path, tmp_path) == ["eins", "", "", "drei"]


words_and_breaks = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\ufeff\x00" + BREAKS)))


@settings(deadline=None)  # the first example imports fairseq
@given(words_and_breaks)
def test_fairseq_sees_the_words_of_a_normalised_line(line):
    from fairseq.tokenizer import tokenize_line

    clean = normalize_line(line)
    assert tokenize_line(clean) == (clean.split(" ") if clean else [])
    assert normalize_line(clean) == clean


@settings(deadline=None)  # the first example imports fairseq
@given(st.lists(words_and_breaks.map(lambda line: line.replace("\n", "")), min_size=1))
def test_fairseq_sees_the_lines_of_a_normalised_file(tmp_path_factory, lines):
    from fairseq.file_chunker_utils import Chunker, find_offsets

    folder = tmp_path_factory.mktemp("lines")
    (folder / "text").write_bytes("".join(f"{line}\n" for line in lines).encode())
    normalize_file(folder / "text", folder / "clean", lambda lines: None)
    seen = []
    offsets = find_offsets(str(folder / "clean"), 2)
    for start, end in pairwise(offsets):
        with Chunker(str(folder / "clean"), start, end) as chunk:
            seen.extend(chunk)
    assert seen == [normalize_line(line) + "\n" for line in lines]


def test_gzipped_text_is_found_and_read(tmp_path):
    with gzip.open(tmp_path / "train.de.gz", "wb") as file:
        file.write("Käse\n".encode())
    assert list(read_lines(find_text_file(str(tmp_path / "train"), "de"))) == ["Käse\n"]


def test_broken_gzip_is_a_users_error(tmp_path):
    path = tmp_path / "train.de.gz"
    path.write_bytes(gzip.compress(b"eins\nzwei\n" * 1000)[:-20])
    with pytest.raises(UserError, match=r"train\.de\.gz: broken gzip file after line \d+"):
        list(read_lines(path))


@pytest.mark.parametrize("rewrite", [lowercase, partial(tokenize, language="de")])
def test_rewriting_keeps_the_order_of_lines_over_batches(tmp_path, monkeypatch, rewrite):
    monkeypatch.setattr("relumt.text_files.BATCH_LINES", 3)
    lines = [f"Zeile {number}." for number in range(8)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = []
    rewrite_file(tmp_path / "in", tmp_path / "out", rewrite, 1, done.append)
    assert list(read_clean_lines(tmp_path / "out")) == rewrite(lines)
    assert done == [3, 3, 2]
    assert pickle.loads(pickle.dumps(rewrite))(lines) == rewrite(lines)  # what a second process would get


def test_moses_tokens():
    assert tokenize(["Das ist z.B. <ein> Hut, oder?"], "de") == ["Das ist z.B. &lt; ein &gt; Hut , oder ?"]
    assert tokenize(["Mr. Jones's hat isn't here."], "en") == ["Mr. Jones &apos;s hat isn &apos;t here ."]
