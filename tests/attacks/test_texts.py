"""`relumt prepare`: texts, words, separators of documents and files beside a text that must not be taken."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.prep.subsets import read_subsets, subsets_path
from relumt.text_files import MAX_LINE_BYTES, normalize_file, read_clean_lines, read_lines
from tests.attacks.special_files import make_broken_link, make_device, make_fifo, make_loop
from tests.prep.cases import PAIRS

pytestmark = pytest.mark.attack("corpora")

BPE = "--bpe=none"


# Texts


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be", "utf-32"])
@pytest.mark.parametrize("text", ["one\ntwo words\nthree\n", "Ελλάδα\nδύο\nτρία\n", "один\nдва\nтри", "single"])
def test_other_encodings_are_refused(attack, bitext, encoding, text):
    for language in ("de", "en"):
        bitext.path("test", language).write_bytes(text.encode(encoding))
    ended = attack.relumt("prepare", *bitext.arguments(), BPE)
    assert ended.status == 2 and "UTF-8" in ended.error


@pytest.mark.parametrize(
    "content",
    [
        b"a\xed\xa0\x80b\nc\nd\n",
        b"\xf8\x88\x80\x80\x80\n2\n3\n",
        b"a\xc0\x80\n2\n3\n",
        b"",
        b"\n\n\n",
        b" \t \n\xe2\x80\xa8\n\xc2\x85\n",
        b"1\n2\n",
        b"1\n2\n3\n4\n",
        b"\xef\xbb\xbf",
        b"\0\0\0",
        b"1\n<s>\n3\n",
        b"1\na <pad> b\n3\n",
        b"1\n2\n</s>",
    ],
)
@pytest.mark.parametrize("language", ["de", "en"])
def test_texts_that_are_no_test_set_are_refused(attack, bitext, content, language):
    bitext.path("test", language).write_bytes(content)
    assert attack.relumt("prepare", *bitext.arguments(), BPE).status == 2


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("\ufeffa\r\nb\r\nc\r\n", ["a", "b", "c"]),
        ("a\rb\nc\rd", ["a b", "c d"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\nc\u2029d\ne\x85f\n", ["a b", "c d", "e f"]),
        ("a\x0bb\nc\x0cd\ne\x1cf\ng\x1dh\ni\x1ej\nk\x1fl\n", ["a b", "c d", "e f", "g h", "i j", "k l"]),
        ("a\0b\nc\nd\ne\n", ["ab", "c", "d", "e"]),
        ("\u202ea\u202c b\n\u200b\n\u200d\n", ["\u202ea\u202c b", "\u200b", "\u200d"]),
        ("e\u0301\né\n", ["e\u0301", "é"]),
        ("x" * 1_000_000, ["x" * 1_000_000]),
        ("x " * 500_000, [("x " * 500_000).strip()]),
        ("a\x1b[2Jb\x07\n", ["a[2Jb"]),
    ],
)
def test_lines_do_not_shift(attack, content, lines):
    Path("text").write_bytes(content.encode())
    assert attack.reads(normalize_file, Path("text"), Path("normalized"), lambda _: None) == ""
    assert list(read_clean_lines(Path("normalized"))) == lines
    assert Path("normalized").read_text().splitlines() == lines  # as Python and fairseq split


@pytest.mark.parametrize("content", ["a\rb\rc\rd\r", "a\rb\rc\n", "a b\rc\rd\r\n"])
def test_texts_whose_lines_end_with_carriage_returns_are_refused(attack, content):
    Path("text").write_bytes(content.encode())
    assert "carriage returns within 1 lines" in attack.reads(normalize_file, Path("text"), Path("new"), lambda _: None)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_line_without_an_end_is_refused(attack, compressed):
    path = Path("text.gz" if compressed else "text")
    zeros = b"a" * (MAX_LINE_BYTES + 1)
    path.write_bytes(gzip.compress(zeros, 1) if compressed else zeros)
    assert "longer than" in attack.reads(lambda: list(read_lines(path)))


ODD_WORDS = [
    *("<unk>", "madeupword0000", "#fairseq:overwrite", "#version:", "a@@", "@@", "▁a", "▁", "</w>", "a</w>b", "<0x0A>"),
    *("\u200b", "\u202e", "e\u0301", "𝒳", "=cmd()", "\\n", "%d", "{}", "|||", "<sep>", "&apos;", "x" * 3000),
]


@pytest.mark.parametrize("bpe", ["subword-nmt", "sentencepiece", "none"])
def test_odd_words_reach_fairseq_unchanged(attack, bitext, bpe):
    from fairseq.data import Dictionary, indexed_dataset

    lines = [(f"{word} Hund", f"dog {word}") for word in ODD_WORDS]
    bitext.write("train", [*PAIRS, *lines * 2])
    bitext.write("test", lines)
    sizes = [] if bpe == "none" else ["--vocab-size", "170"]
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", bpe, *sizes, "--tokenized-input")
    assert ended.status == 0
    dictionary = Dictionary.load(str(bitext.out / "dict.de.txt"))
    undo = {
        "none": str,
        "subword-nmt": lambda line: f"{line} ".replace("@@ ", "").strip(),
        "sentencepiece": lambda line: line.replace(" ", "").replace("▁", " ").strip(),
    }[bpe]
    ambiguous = {"subword-nmt": ("a@@", "@@"), "sentencepiece": ("▁a", "▁"), "none": ()}[bpe]
    for language, side in (("de", 0), ("en", 1)):
        path = str(bitext.out / f"test.de-en.{language}")
        sentences = [dictionary.string(tokens) for tokens in indexed_dataset.make_dataset(path, "mmap")]
        assert len(sentences) == len(lines)
        for word, sentence, pair in zip(ODD_WORDS, sentences, lines, strict=True):
            assert word in ambiguous or undo(sentence) == pair[side]
        assert (bitext.out / "text" / f"test.{language}").read_text() == "".join(f"{pair[side]}\n" for pair in lines)


# The separator of documents


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("language", ["de", "en"])
@pytest.mark.parametrize("bpe", ["subword-nmt", "none"])
def test_a_text_with_the_separator_is_refused(attack, bitext, split, language, bpe):
    pairs = list(PAIRS[:4])
    pairs[2] = ("Hund <sep> Katze", "cat") if language == "de" else ("Katze", "dog <sep>")
    bitext.write(split, pairs)
    sizes = [] if bpe == "none" else ["--vocab-size", "30"]
    ended = attack.relumt("prepare", *bitext.arguments(), "--bpe", bpe, *sizes, "--document-separator", "<sep>")
    assert ended.status == 2 and "(sentence 3); choose another --document-separator" in ended.error


@pytest.mark.parametrize(
    "word", ["", " ", "a b", "<s>", "<unk>", "madeupword0001", "a\0", "\ufeff", "a\u2028b", "a\n", "x@@"]
)
def test_words_that_cannot_separate_are_refused(attack, bitext, word):
    assert attack.relumt("prepare", *bitext.arguments(), f"--document-separator={word}").status == 2


def test_a_subword_cannot_separate(attack, bitext):
    options = ["--bpe", "subword-nmt", "--vocab-size", "5", "--document-separator", "d"]
    bitext.write("train", [("aaaa d aab", "aaad")] * 20)
    assert "the text contains d (sentence" in attack.relumt("prepare", *bitext.arguments(), *options).error


# Files beside the texts

SIDE_FILES = ["train.docs", "test.docs", "test.subsets.json", "valid.align", "test.de-en.align", "test.raw.de"]


@pytest.mark.parametrize("name", [*SIDE_FILES, "train.de", "test.en"])
@pytest.mark.parametrize("make", [Path.mkdir, make_fifo, make_loop, make_broken_link, make_device])
def test_what_is_no_file_is_not_taken_for_a_missing_one(attack, bitext, name, make: Callable):
    (bitext.folder / name).unlink(missing_ok=True)
    make(bitext.folder / name)
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input")
    assert ended.status == 2 and "expected a file, found" in ended.error


SUBSETS = [
    *('{"a": [1.0]}', '{"a": [true]}', '{"a": [-1]}', '{"a": [3]}', '{"a": [0, 1, 2]}', '{"a": null}', '{"a": "0"}'),
    *(
        '{"a": [[0]]}',
        '{"": [0]}',
        '{"a\\nb": [0]}',
        '{" a": [0]}',
        '{"\\u202ea": [0]}',
        "[]",
        "null",
        "",
        "{",
        "[" * 9999,
    ),
    *('{"a": [1e400]}', '{"a": [NaN]}', '{"a": [' + "9" * 5000 + "]}", '{"a": {"b": [0]}}', '\ufeff{"a": [0]}', "\0"),
]


@pytest.mark.parametrize("content", SUBSETS)
def test_subsets_of_another_shape_are_refused(attack, content):
    Path("test.subsets.json").write_text(content)
    assert "test.subsets.json: " in attack.reads(read_subsets, subsets_path("test"), 3)


def test_subsets_that_are_not_utf8_are_refused(attack):
    Path("test.subsets.json").write_bytes(b'{"\xff": [0]}')
    assert "test.subsets.json: " in attack.reads(read_subsets, subsets_path("test"), 3)


def test_subsets_by_their_former_name_are_not_lost(attack, bitext):
    (bitext.folder / "test.parts.json").write_text('{"a": [0]}')
    ended = attack.relumt("prepare", *bitext.arguments(), BPE)
    assert ended.status == 2 and "now named test.subsets.json; rename it" in ended.error
    assert "rename it" in attack.reads(subsets_path, str(bitext.folder / "test"))


@pytest.mark.parametrize(
    "content", ["0-99999999999999999999\n" * 3, "0-0\n", "-1-0\n" * 3, "x\n" * 3, "0-" + "9" * 5000]
)
def test_alignments_of_another_text_are_refused(attack, bitext, content):
    (bitext.folder / "test.align").write_text(content)
    assert attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input").status == 2
