"""The data of a run: changed text, forged files, odd names of datasets, languages and folders."""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from relumt.runs.comparability import require_equal_evaluations
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.environment import Revision
from relumt.runs.provenance import provenance_differences, training_provenance
from relumt.runs.record import save_record
from relumt.runs.run_config import resolve_run_config
from relumt.runs.training_steps import open_record
from tests.runs.cases import CPU, index, scored_record, with_value, write_checkpoint, write_data_bin, write_dataset

pytestmark = pytest.mark.attack("records")

PREPARED = {
    **{"source": "de", "target": "en", "bpe": "none"},
    **{"tokenized": True, "lowercased": False, "plain_references": True},
}


@pytest.fixture(autouse=True)
def constant_environment(monkeypatch):
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def configs(attack) -> Path:
    folder = attack.folder / "configs"
    (folder / "datasets").mkdir(parents=True)
    for dataset in ("default", "small"):
        write_dataset(folder, dataset)
    (folder / "models").mkdir()
    (folder / "models" / "stock.args").write_text("--arch transformer\n")
    return folder


@pytest.fixture
def folder(attack) -> Path:
    folder = write_data_bin(attack.folder / "data-bin" / "small", record=PREPARED, sentences=8)
    (folder / "train.docs").write_text("4\n4\n")
    (folder / "text").mkdir()
    (folder / "text" / "test.en").write_text("a\n" * 8)
    (folder / "text" / "test.raw.en").write_text("A\n" * 8)
    for language in ("de", "en"):
        (folder / f"train.de-en.{language}.bin").write_bytes(bytes(range(16)))
    return folder


def shuffle_words(path: Path) -> None:
    """Shuffle tokens, which leaves the lengths and the file's size as they are."""
    tokens = list(path.read_bytes())
    random.Random(1).shuffle(tokens)
    path.write_bytes(bytes(tokens))


def forge(path: Path) -> None:
    """Change a file and hide it: the size, the times and the inode stay the same."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(3)
        file.write(b"\xff")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


CHANGES: dict[str, Callable[[Path], object]] = {
    "words within lines": lambda folder: shuffle_words(folder / "train.de-en.de.bin"),
    "one byte, forged times": lambda folder: forge(folder / "train.de-en.en.bin"),
    "lengths": lambda folder: (folder / "train.de-en.de.idx").write_bytes(index(7)),
    "validation text": lambda folder: forge(folder / "valid.de-en.de.bin"),
    "validation lengths": lambda folder: forge(folder / "valid.de-en.en.idx"),
    "boundaries of documents": lambda folder: (folder / "train.docs").write_text("3\n5\n"),
    "a second shard": lambda folder: shutil.copy(folder / "train.de-en.de.bin", folder / "train1.de-en.de.bin"),
    "a shard's documents": lambda folder: (folder / "train1.docs").write_text("8\n"),
    "no text": lambda folder: (folder / "train.de-en.de.bin").unlink(),
    "sides exchanged": lambda folder: (
        (folder / "valid.de-en.de.bin").write_bytes(b"x"),
        (folder / "valid.de-en.en.bin").write_bytes(b""),
    ),
    "raw text": lambda folder: (folder / "train.de-en.de").write_text("ein Hund\n"),
    "alignments": lambda folder: (folder / "train.align.de-en").write_text("0-0\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_training_data_is_not_resumed(attack, configs, folder, change):
    config = resolve_run_config("small", "stock", 1, configs, attack.folder / "runs", folder)
    before = training_provenance(config.train_flags([]), config.data_bin, CPU)
    record = open_record(config, before, accept_changes=False)
    write_checkpoint(config)
    save_record(config.folder, record)
    CHANGES[change](folder)
    after = training_provenance(config.train_flags([]), config.data_bin, CPU)
    message = attack.reads(open_record, config, after, False)
    assert "was created with different settings: data " in message


def test_unchanged_data_has_the_same_checksum_wherever_it_lies(attack, folder):
    copy = shutil.copytree(folder, attack.folder / "copy")
    (copy / "README").write_text("not data")
    for subset in ("train", "valid", "test"):
        assert open_data_bin(copy).training_checksum(subset) == open_data_bin(folder).training_checksum(subset)
        assert open_data_bin(copy).evaluation_checksum(subset) == open_data_bin(folder).evaluation_checksum(subset)
    assert attack.reads(open_data_bin, copy) == ""


@pytest.mark.parametrize(
    "name", ["test.de-en.de.bin", "test.de-en.en.idx", "text/test.en", "text/test.raw.en", "text/test.subsets.json"]
)
def test_changed_test_data_is_translated_again(attack, folder, name):
    data_bin = open_data_bin(folder)
    before = data_bin.evaluation_checksum("test")
    (folder / name).write_bytes(b"{}" if name.endswith("json") else b"changed\n")
    assert attack.reads(data_bin.evaluation_checksum, "test") == ""
    assert data_bin.evaluation_checksum("test") != before


def test_other_subsets_are_hashed_if_flags_name_them(attack, folder):
    flags = {"--train-subset": ["test"], "--valid-subset": ["valid,test"]}
    data_bin = open_data_bin(folder)
    recorded = training_provenance(flags, data_bin, CPU)
    assert recorded.data.keys() == {"test", "valid"}
    forge(folder / "test.de-en.de.bin")
    assert attack.reads(training_provenance, flags, data_bin, CPU) == ""
    assert len(provenance_differences(recorded, training_provenance(flags, data_bin, CPU))) == 1


@pytest.mark.parametrize("subset", ["../train", "", "train,,x", "tr\nain", "-x", "train/", "*", "t" * 300, "tr\0"])
def test_odd_names_of_subsets_are_refused(attack, folder, subset):
    data_bin = open_data_bin(folder)
    flags = {"--valid-subset": [subset or ","]}
    assert "subset " in attack.reads(training_provenance, flags, data_bin, CPU)
    assert "subset " in attack.reads(data_bin.require_subset, subset)


def test_old_checksums_of_lengths_are_unknown_not_equal(attack, configs, folder):
    """Runs of earlier revisions recorded the lengths only; they continue only if somebody accepts that."""
    config = resolve_run_config("small", "stock", 1, configs, attack.folder / "runs", folder)
    current = training_provenance(config.train_flags([]), config.data_bin, CPU)
    (difference,) = provenance_differences(replace(current, data={"train": "0123456789ab"}), current)
    assert difference.startswith("data recorded by its sentence lengths only")
    assert attack.reads(provenance_differences, current, current) == ""


def test_runs_of_earlier_revisions_make_a_table(attack):
    for model, checksum in (("softmax", "0123456789ab"), ("stock", "ab" * 32)):
        record = with_value(scored_record(model=model), "provenance.data", {"train": checksum})
        save_record(attack.folder / "runs" / "small" / model / "1", record)
    ended = attack.relumt("table", "--runs", "runs")
    assert ended.status == 0 and "softmax" in ended.stdout and "stock" in ended.stdout


def test_runs_on_different_texts_are_not_compared(attack):
    a, b = ("a" * 64, "b" * 64)
    records = {name: with_value(scored_record(), "provenance.data.train", name) for name in (a, b)}
    assert "differ in the training data" in attack.reads(require_equal_evaluations, records)
    old = with_value(scored_record(), "provenance.data.train", "0123456789ab")
    assert attack.reads(require_equal_evaluations, {"old": old, "new": records[a]}) == ""


HEADER = index(3)[:26]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"MMIDIDX\0\0", b"\0" * 26, HEADER, index(3)[:-1], index(3) + b"\0", b"TNTIDX\0\0" + bytes(60)),
        HEADER[:18] + b"\xff" * 8 + index(3)[26:],
        HEADER[:9] + b"\2" + HEADER[10:] + index(3)[26:],
    ],
    ids=lambda content: f"{len(content)} bytes {content[17:22].hex()}",
)
def test_damaged_indices_are_refused(attack, folder, content):
    (folder / "test.de-en.en.idx").write_bytes(content)
    message = attack.reads(open_data_bin(folder).num_sentences, "test")
    assert "test.de-en.en.idx: not a complete index" in message


@pytest.mark.parametrize("key", PREPARED)
def test_damaged_prepare_json_is_refused(attack, folder, key):
    raw_values = ("null", "[]", "{}", "1e999", "9" * 5000, "[" * 10_000, '"x', "-1", "0.5")
    for raw in raw_values:
        (folder / "prepare.json").write_text(json.dumps(PREPARED | {key: "@@"}).replace('"@@"', raw))
        assert "prepare the data-bin again" in attack.reads(open_data_bin, folder)
    (folder / "prepare.json").write_text(json.dumps({name: PREPARED[name] for name in PREPARED if name != key}))
    assert f"missing required field `{key}`" in attack.reads(open_data_bin, folder)


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device"])
def test_other_kinds_of_prepare_json_are_refused(attack, folder, kind):
    path = folder / "prepare.json"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "device": "/dev/zero"}[kind])
    assert "prepare the data-bin again" in attack.reads(open_data_bin, folder)


LANGUAGES = [
    "",
    "d\ne",
    "../de",
    "/de",
    "d e",
    "-de",
    "de\t",
    "de.en",
    "d\u2028e",
    "x" * 99,
    "d\0e",
    "$(id)",
    "de;",
    "*",
]


@pytest.mark.parametrize("language", LANGUAGES, ids=repr)
def test_odd_languages_are_refused(attack, folder, language):
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"target": language}))
    assert "is not a language code" in attack.reads(open_data_bin, folder)


def test_line_breaks_in_the_file_names_of_a_plain_data_bin_are_refused(attack):
    folder = write_data_bin(attack.folder / "plain")
    for path in folder.glob("*.en.*"):
        path.unlink()
    (folder / "train.de-e\nn.de.idx").write_bytes(index(1))
    (folder / "train.de-en.de.idx").unlink()
    (folder / "dict.e\nn.txt").write_text("a 1\n")
    assert "is not a language code" in attack.reads(open_data_bin, folder)


@pytest.mark.parametrize("name", ["dict.en.txt", "dict.de.txt"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"\0"], ids=repr)
def test_damaged_dictionaries(attack, folder, name, content):
    (folder / "prepare.json").unlink()
    (folder / name).write_bytes(content)
    attack.reads(open_data_bin, folder)


ODD_NAMES = [
    *(
        "a\nb",
        "a\n--user-dir\nevil",
        "a:b",
        "a\tb",
        "\x1b[31m",
        "a\u2028b",
        "\u202eabc",
        ".hidden",
        "-rf",
        "--help",
    ),
    "x" * 250,
    os.fsdecode(b"not-utf-8-\xff"),
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_odd_names_of_a_data_bin_are_refused(attack, configs, folder, name):
    """A line break in a path would become further arguments of fairseq, such as --user-dir, which runs code."""
    path = folder.rename(attack.folder / "data-bin" / name)
    message = attack.reads(resolve_run_config, str(path), "stock", 1, configs, Path("runs"), None)
    assert "expected a name" in message or "expected a path" in message


@pytest.mark.parametrize("name", ODD_NAMES[:7], ids=ascii)
@pytest.mark.parametrize("variable", ["runs", "data_bin"])
def test_odd_folders_are_refused(attack, configs, folder, name, variable):
    odd = attack.folder / name / "inner"
    if variable == "data_bin":
        shutil.copytree(folder, odd)
    runs, data_bin = (odd, folder) if variable == "runs" else (Path("runs"), odd)
    message = attack.reads(resolve_run_config, "small", "stock", 1, configs, runs, data_bin)
    assert "expected a path without" in message


@pytest.mark.parametrize(
    "name", ["a b", "ä", "日本", "a'b", 'a"b', "a$HOME", "a;b", "a*b", "a&b", "#a", "a\\b", "~", "%s"], ids=ascii
)
def test_unusual_but_valid_names_work(attack, configs, folder, name):
    path = folder.rename(attack.folder / "data-bin" / name)
    assert attack.reads(resolve_run_config, str(path), "stock", 1, configs, Path("runs"), None) == ""
    config = resolve_run_config(str(path), "stock", 1, configs, Path("runs"), None)
    assert config.folder == Path("runs") / name / "stock" / "1"
    assert str(path) in config.train_command(config.train_flags([]), CPU)


@pytest.mark.parametrize(
    "dataset",
    [
        "",
        "/",
        "..",
        "../configs/datasets/small",
        "small.toml",
        "no\nsuch",
        "nul\0",
        "x" * 5000,
        "~",
        "small/",
        "*",
        "-",
    ],
    ids=lambda name: repr(name[:30]),
)
@pytest.mark.parametrize("model", ["stock", "../stock", "stock\n", "", "-h", "/etc/passwd", "stock.args"], ids=repr)
def test_unknown_names_are_refused(attack, configs, folder, dataset, model):
    arguments = ["--runs", "runs", "--configs", configs, "--", dataset, model]
    ended = attack.relumt("run-record", "data-bin", *arguments)
    assert ended.status == 2 and "STEP" not in ended.error


@pytest.mark.parametrize("inside", [".", "runs", "text/../runs", "a/b/c"])
def test_runs_inside_of_the_data_bin_are_refused(attack, configs, folder, inside):
    message = attack.reads(resolve_run_config, "small", "stock", 1, configs, folder / inside, folder)
    assert "is inside the data-bin" in message


@pytest.mark.parametrize(
    "flag", ["--source-lang", "-s", "--target-lang=de", "-t", "--restore-file", "--finetune-from-model=x"]
)
def test_flags_that_change_what_the_run_reads_are_refused(attack, configs, folder, flag):
    config = resolve_run_config("small", "stock", 1, configs, Path("runs"), folder)
    assert "is set by the scripts" in attack.reads(config.train_flags, [flag, "de"] if "=" not in flag else [flag])


def test_a_data_bin_may_be_a_symbolic_link(attack, folder):
    link = attack.folder / "link"
    link.symlink_to(folder)
    assert attack.reads(open_data_bin, link) == ""
    found: DataBin = open_data_bin(link)
    assert found.training_checksum("train") == open_data_bin(folder).training_checksum("train")
