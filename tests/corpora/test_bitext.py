"""Bitexts: cleaning and markup, and what users do wrong with `relumt prepare`, with the one line that says so."""

import pytest

from relumt.corpora.bitext import clean_pairs, read_subsets, reason_to_drop, remove_markup, write_subsets
from relumt.corpora.document_lengths import lengths_after_cleaning
from relumt.errors import UserError
from tests.corpora.cases import PAIRS


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
        ("a " + "b" * 1000, "x", None),
        ("a", "x " + "y" * 1001, "too long"),
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
    path = tmp_path / "test.subsets.json"
    assert read_subsets(path, 3) == {}
    write_subsets(path, {"without the last line": [2]})
    assert read_subsets(path, 3) == {"without the last line": [2]}


NONE = ["--bpe", "none"]
TOKENIZED = [*NONE, "--tokenized-input"]
LATIN = "eins\nK\u00e4se\ndrei\n".encode("latin-1")
THREE_RAW = {f"{split}.raw.{code}": "x\n" * 3 for split, code in (("valid", "de"), ("valid", "en"), ("test", "de"))}
SUBWORD = "".join(f"{line}\n" for line in ["Der Hu@@ nd", "Er", "Es"])

ATTACKS = [
    # files beside or in place of those of the bitext, flags, and what the error line says
    ({"train.en": "one\n" * 41}, [], "train.de has 40 lines, {}/train.en has 41; expected a sentence"),
    ({"valid.de": ""}, [], "{}/valid.de: empty file"),
    ({"test.de": LATIN}, [], "{}/test.de:2: not valid UTF-8 (byte 0xe4 at position 2 of the line)"),
    ({"test.en": "one\n\xa0\r\nthree\n"}, [], "{}/test.en:2: empty line; valid and test need a sentence on every line"),
    ({"valid.de": "a\n<PAD>\nb\nc\n"}, ["--lowercase"], "{}/valid.de:2: <pad>, a word or what BPE leaves of one"),
    ({"test.de": SUBWORD}, NONE, "{}/test.de: expected words, but 1 of 3 lines have subwords"),
    ({"test.docs": "2\n2\n"}, NONE, "{}/test.docs: its documents have 4 sentences, but the text has 3 lines"),
    ({}, [*NONE, "--documents", "d"], "{}/train.de:1: no document begins before"),
    ({"test.align": "0-0\n"}, TOKENIZED, "{}/test.align has 1 alignments, but the text has 3 pairs"),
    ({"test.align": "0-0\n" * 3, "test.de-en.align": "0-0\n" * 3}, TOKENIZED, "are both alignments of"),
    ({"test.align": "0-0\n" * 3}, ["--tokenize"], "{}/test.align: --tokenize would change the words"),
    ({"test.align": "0-0\n" * 3, "test.de": "a\nb \x01 c\nd\n"}, TOKENIZED, "{}/test.de:2: has 3 words, but 2 after"),
    ({"test.align": "0-0\n" * 3, "test.en": "1\xa0000\nb\nc\n"}, TOKENIZED, "{}/test.en:1: has 1 words, but 2 after"),
    ({"test.subsets.json": '{"a": [0, 1, 2]}'}, NONE, "'a' excludes line 2, or every line"),
    (THREE_RAW, TOKENIZED, "{}/test.raw.en: No such file or directory"),
    (THREE_RAW | {"test.raw.en": "x\n" * 3}, TOKENIZED, "{}/valid.raw.de has 3 lines, but the tokenized text has 4"),
    ({}, [*NONE, "--vocab-size", "10"], "--vocab-size has no effect with --bpe none"),
    ({}, ["--tokenize", "--tokenized-input"], "exclude each other"),
    ({}, ["--tgt", "../de"], "'../de' is not a language code"),
    ({}, ["--max-ratio", "0.5"], "--max-ratio must be at least 1"),
    ({}, ["--max-length", "1"], "cleaning drops every training pair (40 too long); raise --max-length or --max-ratio"),
    ({}, ["--bpe", "sentencepiece"], "Vocabulary size too high"),
    ({}, [*NONE, "--document-separator", "two words"], "is not one word; try <sep>"),
    ({}, [*NONE, "--document-separator", "wartet"], "the text contains wartet; choose another --document-separator"),
    ({}, ["--out", "a:b"], "fairseq splits the path of a data-bin at colons"),
    ({"created/data-bin/prepare.json": "[]"}, ["--overwrite"], "prepare.json: not in the expected format"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "flags", "message"), ATTACKS)
def test_what_users_do_wrong_is_refused_in_one_line(bitext, capsys, files, flags, message):
    for name, content in files.items():
        path = bitext.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(bitext.folder.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        bitext.prepare(*flags)
    assert stopped.value.code == 2
    assert sorted(bitext.folder.rglob("*")) == before
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("relumt: error: ")]
    assert message.replace("{}", str(bitext.folder)) in error


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_reserved_word_as_a_subword(bitext, capsys, split):
    texts = {"train": [*PAIRS, *[("a<pad> b<pad> c<pad>", "dog")] * 50], "test": PAIRS[:3]}  # words of one subword each
    texts[split] = [*texts[split], ("Katze<pad>", "cat")]
    for name, lines in texts.items():
        bitext.write(name, lines)
    with pytest.raises(SystemExit):
        bitext.prepare("--vocab-size", "100")
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{bitext.path(split, 'de')}:" in error and "<pad>, a word or what BPE leaves of one, is reserved" in error


ODD_WORDS = [
    *("<unk>", "madeupword0000", "#fairseq:overwrite", "#version:", "</w>", "a</w>b", "<0x0A>", "\u200b", "e\u0301"),
    *("𝒳", "=cmd()", "\\n", "%d", "{}", "|||", "<sep>", "&apos;", "x" * 1000),
]


@pytest.mark.parametrize("bpe", ["subword-nmt", "sentencepiece", "none"])
def test_odd_words_reach_fairseq_unchanged(bitext, bpe):
    from fairseq.data import Dictionary, indexed_dataset

    lines = [(f"{word} Hund", f"dog {word}") for word in ODD_WORDS]
    bitext.write("train", [*PAIRS, *lines * 2])
    bitext.write("test", lines)
    bitext.prepare("--bpe", bpe, *([] if bpe == "none" else ["--vocab-size", "170"]), "--tokenized-input")
    dictionary = Dictionary.load(str(bitext.out / "dict.de.txt"))
    undo = {
        "none": str,
        "subword-nmt": lambda line: f"{line} ".replace("@@ ", "").strip(),
        "sentencepiece": lambda line: line.replace(" ", "").replace("▁", " ").strip(),
    }[bpe]
    for side, language in enumerate(("de", "en")):
        path = str(bitext.out / f"test.de-en.{language}")
        sentences = [undo(dictionary.string(tokens)) for tokens in indexed_dataset.make_dataset(path, "mmap")]
        assert sentences == [pair[side] for pair in lines]
