import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relumt.data.document_lengths import lengths_after_cleaning, read_document_lengths
from relumt.errors import UserError
from relumt.prep.bitext import (
    check_line_counts,
    check_no_reserved_word,
    clean_pairs,
    locate_extra_lines,
    reason_to_drop,
)


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a b c", "x", None),
        ("a b c d", "x", "length ratio"),
        ("x", "a b c d", "length ratio"),
        ("a b c d e", "a b c d e", None),
        ("a b c d e f", "a b c d e", "too long"),
        ("", "a", "empty"),
        ("a", "", "empty"),
        ("a <pad> b", "a b", "reserved word"),
        ("a b", "a </s>", "reserved word"),
    ],
)
def test_reason_to_drop(source, target, reason):
    assert reason_to_drop(source.split(), target.split(), max_length=5, max_ratio=3) == reason


def test_cleaning_drops_pairs_and_shortens_their_documents(tmp_path):
    source = write(tmp_path / "s", "a", "", "c c", "d d d d d d", "e")
    target = write(tmp_path / "t", "1", "2", "3 3", "4", "5")
    outputs = tmp_path / "s2", tmp_path / "t2"
    kept, dropped = clean_pairs((source, target), outputs, max_length=5, max_ratio=9)
    assert kept == [True, False, True, False, True]
    assert dropped == {"empty": 1, "too long": 1}
    assert [path.read_text() for path in outputs] == ["a\nc c\ne\n", "1\n3 3\n5\n"]
    assert lengths_after_cleaning([1, 1, 2, 1], kept) == [1, 1, 1]


def test_a_document_ends_where_a_sentence_was_removed():
    assert lengths_after_cleaning([6, 3], [True, True, False, True, False, False, False, True, True]) == [2, 1, 2]


def test_dropping_every_pair_is_an_error(tmp_path):
    paths = write(tmp_path / "s", "a a a"), write(tmp_path / "t", "1")
    with pytest.raises(UserError, match=r"drops every training pair \(1 length ratio\)"):
        clean_pairs(paths, (tmp_path / "s2", tmp_path / "t2"), max_length=5, max_ratio=2)


def test_a_reserved_word_is_reported_with_its_line(tmp_path):
    text = write(tmp_path / "text", "a", "b <pad>")
    with pytest.raises(UserError, match=r"test\.de:2: the word <pad> is reserved"):
        check_no_reserved_word(text, tmp_path / "test.de")


@pytest.mark.parametrize("line", ["", "two", "0", "-1", "1.5"])
def test_document_lengths_are_positive_integers(tmp_path, line):
    with pytest.raises(UserError, match=r"test\.docs:2: "):
        read_document_lengths(write(tmp_path / "test.docs", "1", line), num_sentences=2)


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_consecutive_extra_lines_are_located(num_extra, place, seed):
    rng = np.random.default_rng(seed)
    target = rng.integers(5, 200, 40)
    source = np.insert((target * rng.uniform(0.95, 1.05, 40)).astype(int), place, [1000] * num_extra)
    assert locate_extra_lines(source, target) == locate_extra_lines(target, source) == place


def test_unequal_line_counts_report_where_the_sides_diverge(tmp_path):
    sides = [["a b c", "d", "e f g h i j k", "l"], ["A B C", "E F G H I J K", "L"]]
    with pytest.raises(UserError, match=r"s has 4 lines, .*t has 3; .* the first mismatch is near line 2\."):
        check_line_counts((tmp_path / "s", tmp_path / "t"), (4, 3), lambda side: sides[side])
