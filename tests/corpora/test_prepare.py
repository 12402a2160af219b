"""`relumt prepare` as a whole on forty PAIRS, read back through fairseq."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fairseq import options as fairseq_options
from fairseq_cli import preprocess
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from relumt.corpora import parallel
from relumt.corpora.bitext import SPLITS
from relumt.corpora.prepare import binarize
from tests.corpora.cases import PAIRS, write_bitext

SCRIPT = Path(__file__).parents[2] / "data_prep" / "prepare.sh"


def read_binarized(out, split, language):
    """Return the sentences that fairseq reads from a data-bin, as strings of subwords."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary.load(str(out / f"dict.{language}.txt"))
    dataset = indexed_dataset.make_dataset(str(out / f"{split}.de-en.{language}"), "mmap", dictionary=dictionary)
    return [dictionary.string(sentence) for sentence in dataset]


@pytest.fixture(scope="module")
def moses(tmp_path_factory):
    """A data-bin with subword-nmt, tokenized and lowercased, of a text with documents and an unfit pair."""
    bitext = write_bitext(tmp_path_factory.mktemp("moses"))
    bitext.write("train", [*PAIRS, ("", "no source"), ("ein\rWort", "a\u2028word")])
    (bitext.folder / "train.docs").write_text("40\n1\n1\n")
    (bitext.folder / "test.docs").write_text("2\n1\n")
    bitext.prepare("--vocab-size", "100", "--tokenize", "--lowercase")
    return bitext


def test_fairseq_reads_the_text_as_subwords(moses):
    for name in ("valid.de", "valid.en", "test.en", "test.de"):
        text = (moses.out / "text" / name).read_text().splitlines()
        assert [line.replace("@@ ", "") for line in read_binarized(moses.out, *name.split("."))] == text
    assert text[0] == "der hund frisst im garten , sagt jörg &apos; s vater ."


def test_side_files_and_documents_are_copied_and_a_separator_added(bitext):
    for split in SPLITS:
        bitext.write(split, [("<d>", "<d>"), *PAIRS[:4], ("<d>", "<d>"), *PAIRS[4:6]])
    options = "--bpe none --tokenized-input --documents d --document-separator <sep>".split()
    (bitext.folder / "test.en-de.align").write_text("0-0 1-2\n\n1p1\n" + "0-0\n" * 3)
    bitext.prepare(*options)
    assert (bitext.out / "text" / "test.align").read_text() == "0-0 2-1\n\n1p1\n" + "0-0\n" * 3
    assert (bitext.out / "test.docs").read_text() == "4\n2\n"
    assert "<d>" not in (bitext.out / "text" / "test.de").read_text()
    for language in ("de", "en"):
        words = (bitext.out / f"dict.{language}.txt").read_text().splitlines()
        assert words[-1] == "<sep> 1" and words.count("<sep> 1") == 1


def test_a_data_bin_is_replaced_only_if_it_may_be(moses, capsys):
    options = ["--vocab-size", "100", "--tokenize", "--lowercase"]
    files = [path for path in moses.out.rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    moses.prepare(*options)
    assert capsys.readouterr().err == f"relumt: {moses.out} is up to date\n"

    def refusal(*more):
        with pytest.raises(SystemExit):
            moses.prepare(*options, *more)
        return capsys.readouterr().err

    error = refusal("--vocab-size", "90", "--valid", str(moses.folder / "test"))
    assert "vocab_size was 100, now 90, " in error and "valid.de has changed" in error
    assert error.endswith("give --overwrite or another --out\n")
    mine = moses.out / "text" / "my_notes.txt"
    mine.touch()
    assert "--overwrite would delete text/my_notes.txt, which this command did not write" in refusal("--overwrite")
    mine.unlink()
    assert [path.stat().st_mtime_ns for path in files] == before
    damaged = moses.out / "test.de-en.de.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:5])
    assert "test.de-en.de.bin is not as it was written; give --overwrite" in refusal()
    damaged.write_bytes(content)


def test_only_what_the_options_ask_for_is_done(bitext):
    bitext.prepare("--bpe", "none", "--tokenize")
    assert (bitext.out / "text" / "test.de").read_text().startswith("Der Hund frisst im Garten , sagt")


def test_record(moses):
    record = json.loads((moses.out / "prepare.json").read_text())
    expected = {"source": "de", "target": "en", "tokenized": True, "lowercased": True, "bpe": "subword-nmt"}
    assert {field: record[field] for field in expected} == expected
    counts = {"read": {"train": 42, "valid": 4, "test": 3}, "dropped": {"empty": 1}}
    assert {name: record["counts"][name] for name in counts} == counts
    assert record["counts"]["binarized"] == {"train": 41, "valid": 4, "test": 3}
    assert len(record["inputs"]) == 8 and "train.docs" in record["inputs"]


def test_subwords_are_those_of_sacremoses_and_subword_nmt(moses, tmp_path):
    sides = []
    for language, lines in zip(("de", "en"), zip(*PAIRS, ("ein Wort", "a word"), strict=True), strict=True):
        tokenizer = MosesTokenizer(lang=language)
        sides.append([tokenizer.tokenize(line, return_str=True).lower() for line in lines])
    with (tmp_path / "codes").open("w+", encoding="utf-8") as codes:
        learn_bpe([*sides[0], *sides[1]], codes, 100)
        bpe = BPE(codes)
    assert (moses.out / "bpe.codes").read_bytes() == (tmp_path / "codes").read_bytes()
    for language, lines in zip(("de", "en"), sides, strict=True):
        assert read_binarized(moses.out, "train", language) == [bpe.process_line(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("bpe", ["subword-nmt", "sentencepiece"])
def test_the_number_of_processes_does_not_change_a_byte(tmp_path, monkeypatch, bpe):
    monkeypatch.setattr(parallel, "CHUNK_BYTES", 500)
    bitext = write_bitext(tmp_path)
    bitext.write("train", [*PAIRS, ("", "no source"), ("ein\rWort's", "„quoted“\u2028(words) , 5.")])
    contents = []
    for processes in (1, 3):
        monkeypatch.setattr(parallel, "num_processes", lambda paths, processes=processes: processes)
        bitext.prepare("--vocab-size", "80", "--bpe", bpe, "--tokenize", "--lowercase", "--overwrite")
        contents.append({path.name: path.read_bytes() for path in bitext.out.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_the_script_with_sentencepiece_and_separate_dictionaries(tmp_path):
    bitext = write_bitext(tmp_path / "bitext with a space")
    options = ["--bpe", "sentencepiece", "--vocab-size", "80", "--separate-dictionaries"]
    command, environment = [SCRIPT, *bitext.arguments(), *options], os.environ | {"PYTHON": sys.executable}
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "\x1b" not in result.stderr  # no progress bars, because stderr is not a terminal
    for language, side in zip(("de", "en"), zip(*PAIRS, strict=True), strict=True):
        pieces = read_binarized(bitext.out, "train", language)
        assert [line.replace(" ", "").replace("▁", " ").strip() for line in pieces] == list(side)
    assert (bitext.out / "dict.de.txt").read_bytes() != (bitext.out / "dict.en.txt").read_bytes()
    record = json.loads((bitext.out / "prepare.json").read_text())
    assert (record["tokenized"], record["lowercased"], record["bpe"]) == (False, False, "sentencepiece")


LANGUAGES = ("de", "en")


def write_random_texts(folder: Path, num_types: int) -> None:
    """Write random words, with ties in frequency, words that only valid and test have, and empty lines."""
    generator = random.Random(num_types)
    folder.mkdir()
    for split, language in itertools.product(SPLITS, LANGUAGES):
        first = 0 if split == "train" else num_types // 2
        lines = [
            " ".join(f"ß{generator.randrange(first, first + num_types)}@@" for _ in range(generator.randrange(6)))
            for _ in range({"train": 300, "valid": 20, "test": 1}[split])
        ]
        if split == "train":
            lines.append(" ".join(f"w{number}" for number in range(num_types)))
        (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# More than 65,500 types need four bytes per token.
@pytest.mark.parametrize(("num_types", "joined"), [(1, True), (50, False), (66_000, True)])
def test_files_equal_those_of_fairseq_preprocess(tmp_path, num_types, joined):
    texts, expected, out = (tmp_path / name for name in ("texts", "expected", "out"))
    write_random_texts(texts, num_types)
    arguments = ["--source-lang", "de", "--target-lang", "en", "--destdir", str(expected)]
    arguments += [word for split in SPLITS for word in (f"--{split}pref", str(texts / split))]
    arguments += ["--joined-dictionary"] * joined
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))
    preprocess.logger.handlers.clear()  # every call adds a file
    out.mkdir()
    binarize({path.name: path for path in texts.iterdir()}, LANGUAGES, out, joined)
    files = {path.name: path.read_bytes() for path in expected.iterdir() if path.name != "preprocess.log"}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    assert len(files) == 14


PREPARE = """
import sys
import relumt.corpora.parallel as parallel
parallel.PARALLEL_FROM_BYTES, parallel.CHUNK_BYTES, parallel.MAX_PROCESSES = 1000, 10_000, 2
from relumt.cli import main
main(sys.argv[1:])
"""
"""`relumt prepare` with worker processes although the text is short."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_prepare_leaves_no_process_and_is_repeated(bitext, number):
    bitext.write("train", PAIRS * 100)
    arguments = ["prepare", *bitext.arguments(), "--tokenize", "--vocab-size", "20"]
    process = subprocess.Popen([sys.executable, "-P", "-c", PREPARE, *arguments], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 60
    while len(workers := children.read_text().split()) < 3 and time.monotonic() < end:  # with multiprocessing's tracker
        time.sleep(0.02)
    assert len(workers) == 3
    process.send_signal(number)
    assert process.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    while any(Path(f"/proc/{worker}/exe").exists() for worker in workers) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{worker}/exe").exists() for worker in workers)
    assert not bitext.out.exists()
    bitext.prepare("--bpe", "none")
    assert [path.name for path in bitext.out.parent.iterdir()] == ["data-bin"]
