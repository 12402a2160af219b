"""Documents that are marked inside the text."""

import pytest

from relumt.errors import UserError
from relumt.prep.markup import remove_markup

D = ["<d>", "a", "b", "<d>", "c", "<d>"]
EUROPARL = ["<CHAPTER ID=1>", "a", '<SPEAKER ID=1 NAME="X">', "b", "<P>", "<CHAPTER ID=2>", "c"]


def remove(tmp_path, kind, source, target):
    inputs = tmp_path / "in.de", tmp_path / "in.en"
    for path, lines in zip(inputs, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    outputs = tmp_path / "out.de", tmp_path / "out.en"
    return remove_markup(kind, inputs, outputs, inputs), [path.read_text() for path in outputs]


@pytest.mark.parametrize(("kind", "lines"), [("d", D), ("europarl", EUROPARL)])
def test_markup_is_removed_and_documents_are_counted(tmp_path, kind, lines):
    lengths, texts = remove(tmp_path, kind, lines, lines)
    assert lengths == [2, 1]
    assert texts == ["a\nb\nc\n"] * 2


def test_markup_on_one_side_only_is_reported_with_its_line(tmp_path):
    with pytest.raises(UserError, match=r"in\.de:4: document markup that the other side lacks"):
        remove(tmp_path, "d", D, ["<d>", "a", "b", "x", "c", "<d>"])


def test_a_document_that_begins_on_one_side_only_is_reported(tmp_path):
    target = [line.replace("<CHAPTER", "<SPEAKER") if number else line for number, line in enumerate(EUROPARL)]
    with pytest.raises(UserError, match=r"in\.de:\d+: one side begins a document here"):
        remove(tmp_path, "europarl", EUROPARL, target)


def test_a_text_without_the_markup_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"in\.de:1: sentence before the first document"):
        remove(tmp_path, "europarl", ["a"], ["b"])
