"""Contrastive examples, and texts of documents to score, that are not what they should be."""

import json
from statistics import fmean

import pytest
import torch

from relumt.analysis.contrast import ContrastiveTest, read_examples
from relumt.errors import AttemptFailedError
from relumt.inference.loaded_model import load_checkpoint_on_data
from relumt.metrics.alignment import read_alignments
from tests.models.build import dictionary, write_checkpoint, write_data_bin

pytestmark = pytest.mark.attack("corpora")

DOCUMENTS = [2, 3]
EXAMPLE = {"document": 0, "sentence": 1, "source": "x", "target": "er lacht", "wrong": ["sie lacht", "es lacht"]}
DIGITS = "9" * 5000


def changed(**fields) -> str:
    return json.dumps(EXAMPLE | fields)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (changed(wrong=[]), "there is no wrong variant"),
        (changed(wrong=[""]), "a variant is empty"),
        (changed(wrong=["sie lacht", " \u2028\u00a0"]), "a variant is empty"),
        (changed(wrong=["\u0007"]), "a variant is empty"),
        (changed(target=""), "a variant is empty"),
        (changed(wrong=["er lacht"]), "two variants are the same"),
        (changed(wrong=["er \n lacht "]), "two variants are the same"),
        (changed(wrong=["sie lacht", "sie lacht"]), "two variants are the same"),
        (changed(wrong=["</s>"]), "the word </s> is reserved by fairseq"),
        (changed(target="er <pad>"), "the word <pad> is reserved by fairseq"),
        (changed(document=True), "Expected `int`, got `bool`"),
        (changed(sentence=False), "Expected `int`, got `bool`"),
        (changed(document=0.0), "Expected `int`, got `float`"),
        (changed(document="0"), "Expected `int`, got `str`"),
        (changed(document=None), "Expected `int`, got `null`"),
        (changed(document=-1), "Expected `int` >= 0"),
        (changed(sentence=-1), "Expected `int` >= 0"),
        (changed(document=2), "no sentence 1 in document 2"),
        (changed(sentence=2), "no sentence 2 in document 0"),
        (changed(sentence=10**18), "no sentence"),
        (changed(sentence=10**30), "no sentence"),
        (f'{{"document": {DIGITS}, "sentence": 0, "target": "a", "wrong": ["b"]}}', "not in the expected format"),
        ('{"document": 1e400, "sentence": 0, "target": "a", "wrong": ["b"]}', "not in the expected format"),
        ('{"document": NaN, "sentence": 0, "target": "a", "wrong": ["b"]}', "not in the expected format"),
        (changed(wrong="sie lacht"), "Expected `array`, got `str`"),
        (changed(wrong=[1]), "Expected `str`, got `int`"),
        (changed(wrong=[["sie lacht"]]), "Expected `str`, got `array`"),
        (changed(wrong={"a": "b"}), "Expected `array`, got `object`"),
        (changed(target=["er lacht"]), "Expected `str`, got `array`"),
        (changed(target=None), "Expected `str`, got `null`"),
        ("[" * 100_000, "not in the expected format"),
        (f'{{"document": {"[" * 100_000}', "not in the expected format"),
        (f'{{"other": {"[" * 100_000}', "not in the expected format"),
        ("{}", "missing required field"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("", "not in the expected format"),
        ("{", "not in the expected format"),
        (changed() + changed(), "not in the expected format"),
        ('{"target": "\\ud800", "wrong": ["a"], "document": 0, "sentence": 0}', "not in the expected format"),
    ],
)
def test_examples_of_another_shape(attack, line, message):
    path = attack.folder / "examples"
    path.write_text(f"{changed()}\n{line}\n", newline="\n")
    error = attack.reads(read_examples, path, DOCUMENTS)
    assert error.startswith(f"{path}:2: ") and message in error and len(error) < 500


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"\xef\xbb\xbf{}\n", changed().encode("utf-16")])
def test_files_that_hold_no_examples(attack, content):
    path = attack.folder / "examples"
    path.write_bytes(content)
    assert attack.reads(read_examples, path, DOCUMENTS)


def test_an_example_that_counts_twice(attack):
    path = attack.folder / "examples"
    path.write_text(f"{changed()}\n{changed(sentence=0)}\n{changed(source='y', target='er  lacht')}\n")
    assert "examples:3: repeats the example of line 1" in attack.reads(read_examples, path, DOCUMENTS)


@pytest.fixture(scope="module")
def short_model(tmp_path_factory):
    return write_checkpoint(
        tmp_path_factory.mktemp("model"), "--max-source-positions", "9", "--max-target-positions", "9"
    )


@pytest.fixture
def contrast(attack, short_model):
    """Return a function that scores one example whose wrong variant has this many words."""
    data = write_data_bin(attack.folder / "data-bin", [(3, 3), (4, 3)])
    write_data_bin(data, [(3, 3)], "train")
    (data / "test.docs").write_text("2\n")

    def score(num_words: int) -> float:
        loaded = load_checkpoint_on_data(short_model, data, cuda=False)
        loaded.load_subset("test")
        target = dictionary().string(loaded.task.dataset("test").tgt[0])
        path = attack.folder / "examples"
        path.write_text(json.dumps({"document": 0, "sentence": 0, "target": target, "wrong": ["w1 " * num_words]}))
        return fmean(ContrastiveTest(loaded, data, "test", path).decisions(64))

    return score


def test_variants_that_the_model_cannot_read(attack, contrast):
    assert attack.reads(contrast, 8) == ""
    assert "sentence 1 or a translation of it exceeds the model's maximum length" in attack.reads(contrast, 9)
    assert attack.reads(contrast, 5000)


def test_probabilities_that_are_not_numbers(attack, contrast, monkeypatch):
    monkeypatch.setattr(
        "relumt.inference.loaded_model.LoadedModel.target_log_probs",
        lambda _, sample: torch.full(sample["target"].shape, torch.nan),
    )
    with pytest.raises(AttemptFailedError, match="probabilities are not numbers"):
        contrast(3)
    attack.outcomes.append("failed")


@pytest.mark.parametrize("subset", ["", "none", "../x", "test.de-en.de.bin", "a\nb", "tes*"])
def test_subsets_that_do_not_exist(attack, contrast, short_model, subset):
    (attack.folder / "examples").write_text("{}\n")
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
    (attack.folder / "examples").write_text('{"document": 0, "sentence": 0, "target": "w1", "wrong": ["w2"]}\n')
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
