"""`relumt prepare`: texts, names, output folders, side files and options that must not be taken."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.prep import binarization
from relumt.prep.test_subsets import read_subsets, subsets_path
from relumt.text_files import MAX_LINE_BYTES, normalize_file, read_clean_lines, read_lines
from tests.prep.cases import PAIRS, Bitext, preprocess_in_process, write_bitext

pytestmark = pytest.mark.attack("corpora")

BPE = "--bpe=none"


@pytest.fixture(autouse=True)
def fast_preprocess(monkeypatch):
    """Run fairseq-preprocess in this process."""
    monkeypatch.setattr(binarization, "run_fairseq_preprocess", preprocess_in_process)


@pytest.fixture
def bitext(attack) -> Bitext:
    return write_bitext(attack.folder / "corpus")


@pytest.fixture
def data_bin(attack, bitext) -> Path:
    """A data-bin, finished and not to be lost."""
    attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input")
    return bitext.out


# Output that would be lost, or that nothing can replace


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # in the working folder: the whole path may be too long


def make_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_broken_link(path: Path) -> None:
    path.symlink_to("missing/folder")


def make_parent_file(path: Path) -> None:
    path.write_text("kept")


def make_foreign_folder(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("kept")


def make_folder_of_another_tool(path: Path) -> None:
    path.mkdir()
    (path / "prepare.json").mkdir()


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (make_fifo, "found a pipe"),
        (make_socket, "found a socket"),
        (make_device, "found a device"),
        (make_loop, "found a broken link"),
        (make_broken_link, "found a broken link"),
        (make_parent_file, "found a file"),
        (make_foreign_folder, "not created by relumt prepare"),
        (make_folder_of_another_tool, "prepare.json"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_an_output_of_another_kind_is_refused(attack, bitext, make: Callable, found, options):
    make(attack.folder / "out")
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--out", attack.folder / "out", *options)
    assert ended.status == 2 and found in ended.error


@pytest.mark.parametrize("out", ["/", ".", "..", "/proc", "/dev", "/sys", "~", "corpus/../../work", "/proc/self/cwd"])
def test_folders_that_hold_more_than_a_data_bin_are_refused(attack, bitext, out):
    path = Path(out).expanduser()
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--out", path, "--overwrite")
    assert ended.status == 2


@pytest.mark.parametrize("out", ["", "file/out", "loop/out", "/proc/1/out", "x" * 256, "a:b"])
def test_an_output_that_cannot_be_created_is_refused(attack, bitext, out):
    Path("file").touch()
    Path("loop").symlink_to("loop")
    assert attack.relumt("prepare", *bitext.arguments(), BPE, "--out", out).status == 2


def test_a_mount_point_is_refused_before_the_work(attack, data_bin, bitext, monkeypatch, tmp_path_factory):
    mounts = tmp_path_factory.mktemp("proc") / "mountinfo"
    mounts.write_text("1 2 8:1 / / rw - ext4 /dev/sda rw\n" + f"3 1 8:1 /x {data_bin} rw - ext4 /dev/sda rw\n")
    monkeypatch.setattr("relumt.files.MOUNTS", mounts)
    monkeypatch.delattr("relumt.prep.pipeline.describe_files")
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--overwrite")
    assert ended.status == 2 and "is a mount point" in ended.error


# Input inside the output that it replaces


def use_text_itself(data_bin: Path, corpus: Path) -> Path:
    return data_bin / "text" / "test"


def use_relative_path(data_bin: Path, corpus: Path) -> Path:
    return Path(os.path.relpath(data_bin)) / "text" / ".." / "text" / "test"


def use_link_to_text(data_bin: Path, corpus: Path) -> Path:
    for language in ("de", "en"):
        (corpus / f"link.{language}").symlink_to(data_bin / "text" / f"test.{language}")
    return corpus / "link"


def use_link_to_folder(data_bin: Path, corpus: Path) -> Path:
    (corpus / "folder").symlink_to(data_bin)
    return corpus / "folder" / "text" / "test"


def use_link_in_data_bin(data_bin: Path, corpus: Path) -> Path:
    for language in ("de", "en"):
        (data_bin / f"mine.{language}").symlink_to(corpus / f"train.{language}")
    return data_bin / "mine"


def use_file_in_data_bin(data_bin: Path, corpus: Path) -> Path:
    for language in ("de", "en"):
        (corpus / f"train.{language}").rename(data_bin / f"mine.{language}")
    return data_bin / "mine"


def use_other_spelling(data_bin: Path, corpus: Path) -> Path:
    return Path("/proc/self/root") / str(data_bin)[1:] / "text" / "test"


def use_link_in_parent(data_bin: Path, corpus: Path) -> Path:
    (data_bin.parent / "up").symlink_to(data_bin.parent)
    return data_bin.parent / "up" / "up" / data_bin.name / "text" / "test"


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize(
    "use",
    [
        use_text_itself,
        use_relative_path,
        use_link_to_text,
        use_link_to_folder,
        use_link_in_data_bin,
        use_file_in_data_bin,
        use_other_spelling,
        use_link_in_parent,
    ],
)
def test_a_data_bin_that_holds_its_input_is_not_replaced(attack, data_bin, bitext, use: Callable, split):
    prefix = use(data_bin, bitext.folder)
    if not Path(f"{bitext.folder / 'train'}.de").exists():  # the corpus has moved into the data-bin
        (bitext.folder / "train.de").symlink_to(f"{prefix}.de")
        (bitext.folder / "train.en").symlink_to(f"{prefix}.en")
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, f"--{split}", prefix, "--overwrite")
    assert ended.status == 2 and "which would be replaced" in ended.error


@pytest.mark.parametrize("suffix", ["docs", "subsets.json", "align"])
def test_a_side_file_inside_the_output_counts_as_input(attack, data_bin, bitext, suffix):
    kept = data_bin / "side"
    kept.write_text({"docs": "3\n", "subsets.json": "{}", "align": "0-0\n0-0\n0-0\n"}[suffix])
    (bitext.folder / f"test.{suffix}").symlink_to(kept)
    arguments = bitext.arguments()
    assert "which would be replaced" in attack.relumt("prepare", *arguments, BPE, "--overwrite").error


def test_an_input_that_is_linked_into_the_output_survives(attack, data_bin, bitext):
    os.link(bitext.path("train", "de"), data_bin / "another name of it")
    content = bitext.path("train", "de").read_bytes()
    assert attack.relumt("prepare", *bitext.arguments(), BPE, "--overwrite").status == 0
    assert bitext.path("train", "de").read_bytes() == content


# Names


@pytest.mark.parametrize("option", ["--src", "--tgt"])
@pytest.mark.parametrize(
    "language",
    [
        "",
        ".",
        "..",
        "a/b",
        "de.en",
        "de\nen",
        "-x",
        "d e",
        "docs",
        "align",
        "$(touch x)",
        "ü",
        "de\u2028",
        "x" * 33,
        "*",
    ],
)
def test_impossible_languages_are_refused(attack, bitext, option, language):
    assert attack.relumt("prepare", *bitext.arguments(), BPE, f"{option}={language}").status == 2


@pytest.mark.parametrize("option", ["--out", "--train", "--test"])
@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1bb", "a\u2028b", "a\x85b", "a\udcffb", "a\u202eb"])
def test_names_that_break_lines_are_refused(attack, bitext, option, name):
    for language in ("de", "en"):
        os.link(bitext.path("train", language), f"{name}.{language}")
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, option, name)
    assert ended.status == 2 and "the name has a line break" in ended.error


@pytest.mark.parametrize(
    "name", ["a b", "-x", "$(touch c)", "'\"`;&|", "[a]*?", "é", "e\u0301", "x" * 255, ".hidden", "%s"]
)
def test_odd_names_work(attack, bitext, name):
    assert attack.relumt("prepare", *bitext.arguments(), BPE, f"--out={name}").status == 0
    assert (Path(name) / "prepare.json").is_file()
    assert sorted(path.name for path in attack.folder.iterdir()) == sorted(["corpus", name])


def test_source_and_target_must_differ(attack, bitext):
    assert "must differ" in attack.relumt("prepare", *bitext.arguments(), BPE, "--tgt", "de").error


def test_one_file_may_be_both_sides(attack, bitext):
    bitext.path("train", "en").unlink()
    bitext.path("train", "en").symlink_to("train.de")
    assert attack.relumt("prepare", *bitext.arguments(), BPE).status == 0


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
    assert "contains the word d" in attack.relumt("prepare", *bitext.arguments(), *options).error


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


# prepare.json of another shape


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", "1", '{"options": []}', '{"options": {}, "inputs": []}', "[" * 9999, "\xff"),
        '{"options": {"bpe": {}}, "inputs": {}}',
        '{"options": {}, "inputs": {"train.de": "sum"}}',
        '{"options": {}, "inputs": {"train.de": {"sha256": 1}}}',
        '{"options": {"vocab_size": ' + "9" * 5000 + '}, "inputs": {}}',
    ],
)
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_damaged_record_is_not_overwritten(attack, bitext, content, options):
    Path("out").mkdir()
    Path("out/prepare.json").write_text(content, encoding="latin-1")
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--out", "out", *options)
    assert ended.status == 2 and "out/prepare.json: not in the expected format" in ended.error


@pytest.mark.parametrize("name", ["test.de-en.de.bin", "train.de-en.en.idx", "dict.en.txt", "text/valid.de"])
def test_a_data_bin_with_a_missing_file_is_not_up_to_date(attack, data_bin, bitext, name):
    (data_bin / name).unlink()
    ended = attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input")
    assert ended.status == 2 and f"{Path(name).name} is missing; give --overwrite" in ended.error


def test_a_record_without_an_option_is_of_other_options(attack, data_bin, bitext):
    record = json.loads((data_bin / "prepare.json").read_text())
    del record["options"]["max_ratio"]
    (data_bin / "prepare.json").write_text(json.dumps(record))
    assert "max_ratio was None" in attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input").error


# Options


@pytest.mark.parametrize(
    "options",
    [
        *(["--vocab-size", number] for number in ("-1", "0", "1e3", "9" * 5000, "", "nan", "٣")),
        *(["--max-length", number] for number in ("0", "-5", "inf")),
        *(["--max-ratio", number] for number in ("nan", "inf", "0", "-1", "1e999", "")),
        *(["--bpe", name] for name in ("", "../bpe", "__import__('os')", "subword-nmt\n")),
        ["--documents", "xml"],
        ["--bpe", "none", "--vocab-size", "5"],
        ["--bpe", "sentencepiece", "--vocab-size", "3"],
    ],
)
def test_impossible_options_are_refused(attack, bitext, options):
    assert attack.relumt("prepare", *bitext.arguments(), *options).status == 2
