"""`relumt prepare`: output folders that must stay, damaged records, and impossible names and options."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.attacks.special_files import make_broken_link, make_device, make_fifo, make_loop, make_socket

pytestmark = pytest.mark.attack("corpora")

BPE = "--bpe=none"


@pytest.fixture
def data_bin(attack, bitext) -> Path:
    """A data-bin, finished and not to be lost."""
    attack.relumt("prepare", *bitext.arguments(), BPE, "--tokenized-input")
    return bitext.out


# Output that would be lost, or that nothing can replace


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
    (data_bin / "text" / "valid.de").unlink()
    os.link(bitext.path("train", "de"), data_bin / "text" / "valid.de")
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


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("--tokenize", ["bpe.codes", "train.docs", "text/test.subsets.json", "text/test.raw.de"]),
        ("--tokenized-input", ["text/test.align", "text/valid.raw.en"]),
    ],
)
def test_a_data_bin_without_an_optional_file_is_not_up_to_date(attack, bitext, option, names):
    (bitext.folder / "train.docs").write_text("40\n")
    (bitext.folder / "test.subsets.json").write_text('{"a": [0]}')
    if option == "--tokenized-input":
        (bitext.folder / "test.align").write_text("0-0\n" * 3)
        for split, language in product(("valid", "test"), ("de", "en")):
            shutil.copyfile(bitext.path(split, language), bitext.path(split, f"raw.{language}"))
    command = ["prepare", *bitext.arguments(), "--vocab-size=50", option]
    attack.relumt(*command)
    assert "up to date" in attack.relumt(*command).stderr
    for name in names:
        content = (bitext.out / name).read_bytes()
        (bitext.out / name).unlink()
        assert f"{Path(name).name} is missing; give --overwrite" in attack.relumt(*command).error
        (bitext.out / name).write_bytes(content)


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
