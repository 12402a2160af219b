import pytest

from relumt.corpora.bitext import (
    clean_pairs,
    read_subsets,
    reason_to_drop,
    remove_markup,
    subsets_path,
    write_subsets,
)
from relumt.corpora.document_lengths import lengths_after_cleaning
from relumt.errors import UserError


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a b c", "x", None),
        ("a b c d", "x", "length ratio"),
        ("a b c d e", "a b c d e", None),
        ("a b c d e f", "a b c d e", "too long"),
        ("", "a", "empty"),
        ("a", "", "empty"),
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


D = ["<d>", "a", "b", "<d>", "c", "<d>"]
EUROPARL = ["<CHAPTER ID=1>", "a", '<SPEAKER ID=1 NAME="X">', "b", "<P>", "<CHAPTER ID=2>", "c"]


def remove(tmp_path, kind, source, target):
    inputs = tmp_path / "in.de", tmp_path / "in.en"
    for path, lines in zip(inputs, (source, target), strict=True):
        write(path, *lines)
    outputs = tmp_path / "out.de", tmp_path / "out.en"
    return remove_markup(kind, inputs, outputs, inputs), [path.read_text() for path in outputs]


@pytest.mark.parametrize(("kind", "lines"), [("d", D), ("europarl", EUROPARL)])
def test_markup_is_removed_and_documents_are_counted(tmp_path, kind, lines):
    lengths, texts = remove(tmp_path, kind, lines, lines)
    assert lengths == [2, 1]
    assert texts == ["a\nb\nc\n"] * 2


def test_markup_on_one_side_only_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"in\.de:2: document markup on one side only; check .*in\.en"):
        remove(tmp_path, "d", ["<d>", "a"], ["<d>", "<d>"])


def test_subsets_are_read_as_written(tmp_path):
    path = subsets_path(str(tmp_path / "test"))
    assert read_subsets(path, 3) == {}
    write_subsets(path, {"without the last line": [2]})
    assert read_subsets(path, 3) == {"without the last line": [2]}
