"""Documents told apart by markup."""

import pytest

from relumt.errors import UserError
from relumt.prep.markup import take_out

D = ["<d>", "a", "b", "<d>", "c", "<d>"]
EUROPARL = ["<CHAPTER ID=1>", "a", '<SPEAKER ID=1 NAME="X">', "b", "<P>", "<CHAPTER ID=2>", "c"]


def taken(tmp_path, kind, source, target):
    inputs = tmp_path / "in.de", tmp_path / "in.en"
    for path, lines in zip(inputs, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    outputs = tmp_path / "out.de", tmp_path / "out.en"
    return take_out(kind, inputs, outputs, inputs), [path.read_text() for path in outputs]


@pytest.mark.parametrize(("kind", "lines"), [("d", D), ("europarl", EUROPARL)])
def test_markup_goes_and_documents_are_counted(tmp_path, kind, lines):
    found, texts = taken(tmp_path, kind, lines, lines)
    assert found == (3, [2, 1])
    assert texts == ["a\nb\nc\n"] * 2


def test_markup_on_one_side_alone_is_named_by_its_line(tmp_path):
    with pytest.raises(UserError, match=r"in\.de:4: markup of documents that the other side lacks"):
        taken(tmp_path, "d", D, ["<d>", "a", "b", "x", "c", "<d>"])


def test_a_text_without_the_markup_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"in\.de:1: a sentence before the first document"):
        taken(tmp_path, "europarl", ["a"], ["b"])
