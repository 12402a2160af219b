"""Lengths and markup of documents: P.docs and --documents."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.data.document_lengths import read_document_lengths
from relumt.prep.markup import remove_markup
from tests.prep.cases import write_bitext

pytestmark = pytest.mark.attack("corpora")

LENGTHS = [
    *(
        "",
        "\n",
        "\n3\n",
        "1\n\n2\n",
        "0\n3\n",
        "-1\n4\n",
        "+3\n",
        "3.0\n",
        "3e0\n",
        "1_0\n",
        "0x3\n",
        "x\n",
        "3 0\n",
        "٣\n",
    ),
    *(
        "9" * 4301,
        "9" * 19 + "\n",
        "0" * 5000 + "\n",
        "3\0\n",
        "1\n1\n",
        "1\n1\n2\n",
        "inf\n",
        "nan\n",
        "1\r2\n",
    ),
    *("³\n", "Ⅲ\n", "1\u20282\n", "\x1b[2J3\n", "3;touch x\n", "a" * 100_000),
]


@pytest.mark.parametrize("content", LENGTHS, ids=lambda content: ascii(content[:12]))
def test_lengths_of_another_shape_are_refused(attack, content):
    Path("test.docs").write_bytes(content.encode())
    message = attack.reads(read_document_lengths, Path("test.docs"), 3)
    assert message.startswith("test.docs:") and len(message) < 300


def test_lengths_after_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "test.docs").write_text("\ufeff3\n", encoding="utf-8")
    assert read_document_lengths(tmp_path / "test.docs", 3) == [3]


@pytest.mark.parametrize("content", [b"\xff\n", b"3\n\xfe", "3\n".encode("utf-16"), "3\n".encode("utf-16-le")])
def test_lengths_that_are_not_utf8_are_refused(attack, content):
    Path("test.docs").write_bytes(content)
    assert attack.reads(read_document_lengths, Path("test.docs"), 3).startswith("test.docs:")


@pytest.mark.parametrize("content", ["3", "1\r\n2\r\n", " 3 \n", "003\n", "1\n1\n1"])
def test_other_spellings_of_lengths_are_read(attack, content):
    Path("test.docs").write_bytes(content.encode())
    assert attack.reads(read_document_lengths, Path("test.docs"), 3) == ""


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("missing")])
def test_lengths_that_are_no_file_are_not_ignored(attack, split, make: Callable):
    bitext = write_bitext(attack.folder / "corpus")
    make(bitext.folder / f"{split}.docs")
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", "none")
    assert ended.status == 2 and f"{split}.docs: expected a file" in ended.error


def test_documents_are_not_given_twice(attack):
    bitext = write_bitext(attack.folder / "corpus")
    (bitext.folder / "test.docs").write_text("3\n")
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", "none", "--documents", "d")
    assert ended.status == 2 and "remove one" in ended.error


MARKED = {
    "only markup": (["<d>", "<d>"], ["<d>", "<d>"], "no sentence besides document markup"),
    "no markup": (["a", "b"], ["a", "b"], "sentence before the first document"),
    "a late start": (["a", "<d>", "b"], ["a", "<d>", "b"], "sentence before the first document"),
    "one side only": (["<d>", "a"], ["<d>", "<d>"], "document markup that the other side lacks"),
    "shifted by one": (["<d>", "a", "<d>", "b"], ["<d>", "a", "b", "<d>"], "document markup that the other side lacks"),
    "empty": ([], [], "no sentence besides document markup"),
}


@pytest.mark.parametrize("name", MARKED)
def test_markup_without_documents_is_refused(attack, name):
    source, target, message = MARKED[name]
    paths = Path("in.de"), Path("in.en")
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    assert message in attack.reads(remove_markup, "d", paths, (Path("out.de"), Path("out.en")), paths)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("kind", ["d", "europarl"])
def test_a_text_of_markup_alone_is_refused(attack, monkeypatch, split, kind):
    bitext = write_bitext(attack.folder / "corpus")
    markup = {"d": "<d>", "europarl": "<CHAPTER ID=1>"}[kind]
    for name in ("train", "valid", "test"):
        bitext.write(name, [(markup, markup)] + ([] if name == split else [("ein Hund", "a dog")] * 3))
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", "none", "--documents", kind)
    assert ended.status == 2 and f"{split}.de: no sentence besides document markup" in ended.error


@pytest.mark.parametrize("content", ['{"a": [0]}', '{"a": [0, 0, 0]}'])
def test_a_subset_of_a_text_with_markup_keeps_a_sentence(attack, content):
    bitext = write_bitext(attack.folder / "corpus")
    for name in ("train", "valid", "test"):
        bitext.write(name, [("<d>", "<d>"), ("ein Hund", "a dog")])
    (bitext.folder / "test.subsets.json").write_text(content)
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", "none", "--documents", "d")
    assert ended.status == 2 and "excludes every line" in ended.error
