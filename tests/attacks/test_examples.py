"""Subsets, texts of documents to score, and alignments that are not what they should be."""

import json

import pytest

from relumt.corpora.alignment import read_alignments
from tests.plugin.model.build import write_checkpoint, write_data_bin

pytestmark = pytest.mark.attack("corpora")

DIGITS = "9" * 5000
EXAMPLE = '{"document": 0, "sentence": 0, "target": "w1", "wrong": ["w2"]}\n'


@pytest.fixture(scope="module")
def short_model(tmp_path_factory):
    return write_checkpoint(
        tmp_path_factory.mktemp("model"), "--max-source-positions", "9", "--max-target-positions", "9"
    )


@pytest.mark.parametrize("subset", ["", "none", "../x", "test.de-en.de.bin", "a\nb", "tes*"])
def test_subsets_that_do_not_exist(attack, short_model, subset):
    write_data_bin(write_data_bin(attack.folder / "data-bin", [(3, 3)]), [(3, 3)], "train")
    (attack.folder / "examples").write_text(EXAMPLE)
    options = ["--data", "data-bin", "--subset", subset]
    for arguments in (
        ["contrast", "--checkpoint", short_model, "--examples", "examples", *options],
        ["analyze", short_model, "--numbers-only", "--out", "out", *options],
    ):
        assert attack.relumt(*arguments).status == 2


@pytest.mark.parametrize("lengths", [[], [(12, 3)]])
def test_test_sets_that_are_empty_or_too_long(attack, short_model, lengths):
    data = attack.folder / "data-bin"
    write_data_bin(data, lengths or [(3, 3)])
    write_data_bin(data, [(3, 3)], "train")
    if not lengths:
        empty_subset(data)
    (data / "test.docs").write_text("1\n" * len(lengths))
    (attack.folder / "examples").write_text(EXAMPLE)
    options = ["--data", "data-bin"]
    assert attack.relumt("analyze", short_model, "--numbers-only", "--out", "out", *options).status == 2
    assert attack.relumt("contrast", "--checkpoint", short_model, "--examples", "examples", *options).status == 2


def empty_subset(data):
    from fairseq.data.indexed_dataset import make_builder

    for language in ("de", "en"):
        builder = make_builder(str(data / f"test.de-en.{language}.bin"), "mmap", 24)
        builder.finalize(str(data / f"test.de-en.{language}.idx"))


# Documents to score, and gold alignments


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ({"hyp": ""}, []),
        ({"ref": ""}, []),
        ({"docs": ""}, []),
        ({"hyp": "a\nb\n"}, []),
        ({"ref": "a\nb\n"}, []),
        ({"docs": "2\n"}, []),
        ({"docs": "0\n3\n"}, []),
        ({"docs": "-3\n"}, []),
        ({"docs": "3.0\n"}, []),
        ({"docs": "٣\n"}, []),
        ({"docs": "1e400\n"}, []),
        ({"docs": f"{DIGITS}\n"}, []),
        ({"docs": "nan\n"}, []),
        ({"docs": "\n3\n"}, []),
        ({"chunks": "2\n1\n"}, ["--chunks", "chunks"]),
        ({"chunks": "1\n1\n"}, ["--chunks", "chunks"]),
        ({"chunks": "1\n1\n2\n"}, ["--chunks", "chunks"]),
        ({"hyp": "a\nb\n", "chunks": "1\n2\n", "docs": "2\n1\n"}, ["--chunks", "chunks"]),
        ({}, ["--separator", " "]),
        ({}, ["--separator", "a b"]),
        ({}, ["--sentences", "ref"]),
        ({"sentences": "a\n"}, ["--sentences", "sentences", "--separator", "|"]),
        ({}, ["--tokenize", "flores200"]),
    ],
)
def test_documents_that_do_not_fit(attack, files, options):
    for name, text in ({"hyp": "a\nb\nc\n", "ref": "a\nb\nc\n", "docs": "3\n"} | files).items():
        (attack.folder / name).write_text(text)
    ended = attack.relumt("score-documents", "--hyp", "hyp", "--ref", "ref", "--docs", "docs", *options)
    assert ended.status == 2 and len(ended.error) < 500


@pytest.mark.parametrize("hypotheses", ["\n\n\n", "\x00\n\x1b\n\u2028\n", "|\n| |\n\n", "a " * 10_000 + "\n\n\n"])
def test_odd_hypotheses_are_scored(attack, hypotheses):
    for name, text in {"hyp": hypotheses, "ref": "a\nb\nc\n", "docs": "1\n2\n"}.items():
        (attack.folder / name).write_text(text, newline="\n")
    ended = attack.relumt("score-documents", "--hyp", "hyp", "--ref", "ref", "--docs", "docs", "--separator", "|")
    assert ended.status == 0 and 0 <= json.loads(ended.stdout)["d-BLEU"]["score"] <= 100


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "1-", "1-2-3", "-1-2", f"{DIGITS}-1", f"1-{DIGITS}", "١-٢", "1.0-2", "nan-1", "0 1 1", "5 1 1",
     "999999999999 1 1", f"1 {DIGITS} 1", "1 1 1\n1-1", "0-0 <script>"],
)  # fmt: skip
def test_alignments_that_are_none(attack, text):
    path = attack.folder / "gold"
    path.write_text(text)
    error = attack.reads(read_alignments, path, 1, 3)
    assert error and len(error) < 500
