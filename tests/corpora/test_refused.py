"""Attacks on `relumt prepare`, `corpus` and `synth`: what users do wrong, and the one line that says so."""

from pathlib import Path

import pytest

from relumt.cli import main
from relumt.files import normalize_file, read_clean_lines
from tests.corpora.cases import PAIRS

NONE = ["--bpe", "none"]
TOKENIZED = [*NONE, "--tokenized-input"]
LATIN = "eins\nK\u00e4se\ndrei\n".encode("latin-1")
THREE_RAW = {f"{split}.raw.{code}": "x\n" * 3 for split, code in (("valid", "de"), ("valid", "en"), ("test", "de"))}
SUBWORD = "".join(f"{line}\n" for line in ["Der Hu@@ nd", "Er", "Es"])
PIECES = "".join(f"{line}\n" for line in ["▁Der ▁Hu nd", "Er", "Es"])

ATTACKS = [
    # files beside or in place of those of the bitext, flags, and what the error line says
    ({"train.en": "one\n" * 41}, [], "train.de has 40 lines, {}/train.en has 41; expected a sentence"),
    ({"valid.de": ""}, [], "{}/valid.de: empty file"),
    ({"test.de": LATIN}, [], "{}/test.de:2: not valid UTF-8 (byte 0xe4 at position 2 of the line)"),
    ({"test.de": "a\nb\nc\n".encode("utf-16")}, [], "UTF-8"),
    ({"test.en": "one\n\xa0\r\nthree\n"}, [], "{}/test.en:2: empty line; valid and test need a sentence on every line"),
    ({"valid.de": "a\n<PAD>\nb\nc\n"}, ["--lowercase"], "{}/valid.de:2: <pad>, a word or what BPE leaves of one"),
    ({"test.de": SUBWORD}, NONE, "{}/test.de: expected words, but 1 of 3 lines have subwords"),
    ({"test.de": PIECES}, NONE, "{}/test.de: expected words, but 1 of 3 lines have subwords"),
    ({"test.docs": "2\n2\n"}, NONE, "{}/test.docs: its documents have 4 sentences, but the text has 3 lines"),
    ({"test.docs": "1\n0\n"}, NONE, "{}/test.docs:2: expected a number of sentences"),
    ({}, [*NONE, "--documents", "d"], "{}/train.de:1: no document begins before"),
    ({"test.align": "0-0\n"}, TOKENIZED, "{}/test.align has 1 alignments, but the text has 3 pairs"),
    ({"test.align": "x\n" * 3}, TOKENIZED, "{}/test.align:1: expected a link such as 1-2 (sure)"),
    ({"test.align": "0-0\n" * 3, "test.de-en.align": "0-0\n" * 3}, TOKENIZED, "are both alignments of"),
    ({"test.align": "0-0\n" * 3}, ["--tokenize"], "{}/test.align: --tokenize would change the words"),
    ({"test.subsets.json": '{"a": [3]}'}, NONE, "{}/test.subsets.json: 'a' excludes line 3, or every line"),
    ({"test.subsets.json": '{"a": [0, 1, 2]}'}, NONE, "'a' excludes line 2, or every line"),
    (THREE_RAW, TOKENIZED, "{}/test.raw.en: No such file or directory"),
    (THREE_RAW | {"test.raw.en": "x\n" * 3}, TOKENIZED, "{}/valid.raw.de has 3 lines, but the tokenized text has 4"),
    ({}, ["--bpe", "wordpiece"], "unknown --bpe 'wordpiece'; choose one of subword-nmt, sentencepiece, none"),
    ({}, [*NONE, "--vocab-size", "10"], "--vocab-size has no effect with --bpe none"),
    ({}, ["--tokenize", "--tokenized-input"], "exclude each other"),
    ({}, ["--tgt", "de"], "--src and --tgt are both 'de'"),
    ({}, ["--tgt", "../de"], "'../de' is not a language code"),
    ({}, ["--max-ratio", "0.5"], "--max-ratio must be at least 1"),
    ({}, ["--max-length", "1"], "cleaning drops every training pair (40 too long); raise --max-length or --max-ratio"),
    ({}, ["--documents", "xml"], "unknown --documents 'xml'; choose one of d, europarl"),
    ({}, ["--bpe", "sentencepiece"], "Vocabulary size too high"),
    ({}, [*NONE, "--document-separator", "two words"], "is not one word; try <sep>"),
    ({}, [*NONE, "--document-separator", "wartet"], "the text contains wartet; choose another --document-separator"),
    ({}, ["--out", "a:b"], "fairseq splits the path of a data-bin at colons"),
    ({"created/data-bin/thesis.tex": "x"}, NONE, "created/data-bin: exists but was not created by this command"),
    ({"created/data-bin/prepare.json": "[]"}, ["--overwrite"], "prepare.json: not in the expected format"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "flags", "message"), ATTACKS)
def test_what_users_do_wrong_is_refused_in_one_line(bitext, capsys, files, flags, message):
    for name, content in files.items():
        path = bitext.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if content is None else path.write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synth", "--documents", "3", "--out", "."], "exists and is not an empty folder; remove it"),
        (["synth", "--documents", "3", "--out", "file/out"], "is not a writable folder"),
        (["corpus", "multi30k"], "invalid choice: 'multi30k'"),
        (["corpus"], "expected a CORPUS (multi30k_de_en"),
        (["corpus", "wmt14_en_de", "--without-tedx"], "are for IWSLT14's own test set"),
        (["corpus", "multi30k_de_en", "--bpe", "none"], "invalid choice: 'none'"),
    ],
)
def test_requests_that_cannot_work(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and message in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("\ufeffa\r\nb\r\nc\r\n", ["a", "b", "c"]),
        ("a\rb\nc\rd", ["a b", "c d"]),
        ("a\u2028b\nc\u2029d\ne\x85f\n", ["a b", "c d", "e f"]),
        ("a\x0bb\nc\x0cd\ne\x1cf\ng\x1dh\ni\x1ej\nk\x1fl\n", ["a b", "c d", "e f", "g h", "i j", "k l"]),
        ("a\0b\nc\nd\ne\n", ["ab", "c", "d", "e"]),
        ("x " * 500_000, [("x " * 500_000).strip()]),
    ],
)
def test_lines_do_not_shift(tmp_path, content, lines):
    (tmp_path / "text").write_bytes(content.encode())
    normalize_file(tmp_path / "text", tmp_path / "normalized", lambda _: None)
    assert list(read_clean_lines(tmp_path / "normalized")) == lines
    assert (tmp_path / "normalized").read_text().splitlines() == lines  # as Python and fairseq split


ODD_WORDS = [
    *("<unk>", "madeupword0000", "#fairseq:overwrite", "#version:", "</w>", "a</w>b", "<0x0A>", "\u200b", "e\u0301"),
    *("𝒳", "=cmd()", "\\n", "%d", "{}", "|||", "<sep>", "&apos;", "x" * 3000),
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
