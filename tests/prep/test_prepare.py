"""The whole path on forty pairs, read back through fairseq; fairseq-preprocess runs twice in all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "data_prep" / "prepare.sh"


def binarised(out, split, language):
    """Return the sentences that fairseq reads from a data-bin, as strings of pieces."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary.load(str(out / f"dict.{language}.txt"))
    dataset = indexed_dataset.make_dataset(str(out / f"{split}.de-en.{language}"), "mmap", dictionary=dictionary)
    return [dictionary.string(sentence) for sentence in dataset]


@pytest.fixture(scope="module")
def moses(tmp_path_factory, pairs, write_bitext):
    """A data-bin with subword-nmt, tokenised and lower-cased, of a text with documents and a useless pair."""
    bitext = write_bitext(tmp_path_factory.mktemp("moses"))
    bitext.write("train", [*pairs, ("", "no source"), ("ein\rWort", "a\u2028word")])
    (bitext.folder / "train.docs").write_text("40\n1\n1\n")
    (bitext.folder / "test.docs").write_text("2\n1\n")
    bitext.prepare("--vocab-size", "100", "--tokenize", "--lowercase")
    return bitext


@pytest.fixture
def untouched(moses):
    """Check that a test leaves every file of the data-bin as it was."""
    before = {path: path.stat().st_mtime_ns for path in moses.out.rglob("*")}
    yield
    assert {path: path.stat().st_mtime_ns for path in moses.out.rglob("*")} == before


def test_fairseq_reads_back_the_text_in_pieces(moses):
    for split in ("valid", "test"):
        for language in ("de", "en"):
            text = (moses.out / "text" / f"{split}.{language}").read_text().splitlines()
            pieces = binarised(moses.out, split, language)
            assert [line.replace("@@ ", "") for line in pieces] == text
    assert (
        (moses.out / "text" / "test.de")
        .read_text()
        .startswith("der hund frisst im garten , sagt jörg &apos; s vater .\n")
    )
    train = binarised(moses.out, "train", "en")
    assert len(train) == 41
    assert train[-1].replace("@@ ", "") == "a word"
    assert any("@@" in line for line in train)


def test_raw_text_is_as_given(moses):
    assert (moses.out / "text" / "test.raw.de").read_bytes() == moses.path("test", "de").read_bytes()


def test_dictionary_is_joined(moses):
    assert (moses.out / "dict.de.txt").read_bytes() == (moses.out / "dict.en.txt").read_bytes()


def test_documents_follow_the_cleaning(moses):
    assert (moses.out / "train.docs").read_text() == "40\n1\n"
    assert (moses.out / "test.docs").read_text() == "2\n1\n"
    assert not (moses.out / "valid.docs").exists()


def test_word_alignments_are_kept_where_they_fit(bitext, capsys):
    of_test, of_valid = (bitext.folder / f"{split}.align" for split in ("test", "valid"))
    of_test.write_text("0-0 1-2\n\n1p1\n")
    of_valid.write_text("0-0\n")
    for flags, message in (
        (["--tokenized-input"], "valid.align has 1 alignments, but the text 4 pairs"),
        (["--tokenize"], "numbers words that --tokenize would split anew"),
    ):
        with pytest.raises(SystemExit):
            bitext.prepare("--bpe", "none", *flags)
        assert message in capsys.readouterr().err and not bitext.out.exists()
    of_valid.unlink()
    bitext.prepare("--bpe", "none", "--tokenized-input")
    kept = bitext.out / "text" / "test.align"
    assert kept.read_text() == of_test.read_text()
    of_test.rename(bitext.folder / "test.en-de.align")
    bitext.prepare("--bpe", "none", "--tokenized-input", "--overwrite")
    assert kept.read_text() == "0-0 2-1\n\n1p1\n"
    (bitext.folder / "test.de-en.align").write_text("0-0\n1-2\n2-2\n")
    with pytest.raises(SystemExit):
        bitext.prepare("--bpe", "none", "--tokenized-input", "--overwrite")
    assert "alignments of one text; remove one" in capsys.readouterr().err


def test_record(moses):
    record = json.loads((moses.out / "prepare.json").read_text())
    expected = {"source": "de", "target": "en", "tokenized": True, "lowercased": True, "bpe": "subword-nmt"}
    assert {field: record[field] for field in expected} == expected
    assert record["steps"]["read"] == {"train": 42, "valid": 4, "test": 3}
    assert record["steps"]["dropped"] == {"empty": 1}
    assert record["steps"]["binarised"] == {"train": 41, "valid": 4, "test": 3}
    assert set(record["inputs"]) == {
        *(f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")),
        "train.docs",
        "test.docs",
    }


def test_nothing_else_is_left(moses):
    assert [path.name for path in moses.out.parent.iterdir()] == ["data-bin"]


@pytest.mark.usefixtures("untouched")
def test_repeating_does_nothing(moses, capsys):
    moses.prepare("--vocab-size", "100", "--tokenize", "--lowercase")
    assert capsys.readouterr().err == f"prepare: {moses.out} is up to date\n"


@pytest.mark.usefixtures("untouched")
def test_other_options_and_inputs_are_refused(moses, capsys):
    with pytest.raises(SystemExit):
        moses.prepare("--vocab-size", "90", "--tokenize", "--lowercase", "--valid", str(moses.folder / "test"))
    error = capsys.readouterr().err
    assert "vocab_size was 100, now 90, " in error
    assert "valid.de has changed" in error
    assert error.endswith("give --overwrite or another --out\n")


def test_sentencepiece_separate_dictionaries_through_the_script(tmp_path, pairs, write_bitext):
    bitext = write_bitext(tmp_path / "bitext with a space")
    texts = [word for split in ("train", "valid", "test") for word in (f"--{split}", str(bitext.folder / split))]
    options = ["--bpe", "sentencepiece", "--vocab-size", "80", "--separate-dictionaries"]
    result = subprocess.run(
        [SCRIPT, "--src", "de", "--tgt", "en", *texts, "--out", str(bitext.out), *options],
        env=os.environ | {"PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stderr  # no bars where there is no terminal
    for language, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        pieces = binarised(bitext.out, "train", language)
        assert [line.replace(" ", "").replace("▁", " ").strip() for line in pieces] == list(side)
    assert (bitext.out / "dict.de.txt").read_bytes() != (bitext.out / "dict.en.txt").read_bytes()
    record = json.loads((bitext.out / "prepare.json").read_text())
    assert (record["tokenized"], record["lowercased"], record["bpe"]) == (False, False, "sentencepiece")


def test_documents_marked_in_the_text_become_sidecars(bitext, pairs):
    for split in ("train", "valid", "test"):
        lines = pairs[:6]
        bitext.write(split, [("<d>", "<d>"), *lines[:4], ("<d>", "<d>"), *lines[4:]])
    bitext.prepare("--bpe", "none", "--documents", "d")
    assert (bitext.out / "test.docs").read_text() == "4\n2\n"
    assert "<d>" not in (bitext.out / "text" / "test.de").read_text()


def test_a_separator_is_added_to_the_dictionaries_alone(bitext, capsys):
    bitext.prepare("--vocab-size", "60", "--document-separator", "<sep>")
    for language in ("de", "en"):
        words = (bitext.out / f"dict.{language}.txt").read_text().splitlines()
        assert words[-1] == "<sep> 1" and words.count("<sep> 1") == 1
    for word, message in (
        ("two words", "is not one word"),
        ("</s>", "is reserved"),
        ("Der", "the text itself has the word Der"),
    ):
        with pytest.raises(SystemExit):
            bitext.prepare("--bpe", "none", "--document-separator", word, "--overwrite")
        assert message in capsys.readouterr().err
