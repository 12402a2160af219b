"""The data of a run: changed text, forged times, shards, damaged files of a data-bin."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.git_revision import hash_uncommitted_changes
from relumt.papers.comparability import DATA, EVALUATION, require_equal
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.provenance import provenance_differences, training_provenance
from relumt.runs.record import save_record
from relumt.runs.run_config import resolve_run_config
from relumt.runs.training import open_record
from tests.attacks.run_cases import PREPARED, write_prepared_data_bin
from tests.runs.cases import CPU, index, scored_record, with_value, write_checkpoint, write_configs

pytestmark = [pytest.mark.attack("records"), pytest.mark.usefixtures("constant_environment")]


@pytest.fixture
def configs(attack) -> Path:
    return write_configs(attack.folder / "configs")


@pytest.fixture
def folder(attack) -> Path:
    return write_prepared_data_bin(attack.folder / "data-bin" / "small")


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
    record = open_record(config, before, force=False)
    write_checkpoint(config.folder)
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


def test_runs_on_different_texts_are_not_compared(attack):
    a, b = ("a" * 64, "b" * 64)
    records = {name: with_value(scored_record(), "provenance.data.train", name) for name in (a, b)}
    assert "differ in the training data" in attack.reads(require_equal, records, DATA)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("provenance.dictionaries", {"en": "d", "de": "d"}, "differ in the dictionaries"),
        ("evaluations.test.references_sha256", "other", "differ in the test set (references)"),
        ("evaluations.test.setup.data", "b" * 64, "differ in the test set (sources, references or subsets)"),
        ("evaluations.test.setup.one_by_one", True, "differ in ONE_BY_ONE: 0 and 1"),
    ],
)
def test_runs_that_translated_something_else_are_not_compared(attack, field, value, message):
    ours = with_value(scored_record(), "evaluations.test.setup.data", "a" * 64)
    held_fixed = {**DATA, **EVALUATION}
    assert attack.reads(require_equal, {"ours": ours, "equal": ours}, held_fixed) == ""
    assert message in attack.reads(require_equal, {"ours": ours, "other": with_value(ours, field, value)}, held_fixed)


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


def test_a_data_bin_may_be_a_symbolic_link(attack, folder):
    link = attack.folder / "link"
    link.symlink_to(folder)
    assert attack.reads(open_data_bin, link) == ""
    found: DataBin = open_data_bin(link)
    assert found.training_checksum("train") == open_data_bin(folder).training_checksum("train")


@pytest.mark.parametrize("name", ["dict.en.txt", "dict.de.txt"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"\0"], ids=repr)
def test_damaged_dictionaries(attack, folder, name, content):
    """Only the target's is read here; damage is always noticed by its checksum."""
    before = open_data_bin(folder).dictionaries()
    (folder / "prepare.json").unlink()
    (folder / name).write_bytes(content)
    problem = attack.reads(open_data_bin, folder)
    assert problem or open_data_bin(folder).dictionaries() != before


def test_odd_files_in_a_checkout(attack):
    """Uncommitted files are hashed, whatever their names and kinds are; nothing blocks."""
    package = attack.folder / "package"
    package.mkdir()
    subprocess.run(["git", "init", "-q", package], check=True)
    before = hash_uncommitted_changes(package)
    (package / os.fsdecode(b"\xff\n")).write_text("x")
    (package / "loop").symlink_to("loop")
    (package / "zero").symlink_to("/dev/zero/x")
    (package / "nested").mkdir()
    subprocess.run(["git", "init", "-q", package / "nested"], check=True)
    os.mkfifo(package / "pipe")
    assert attack.reads(hash_uncommitted_changes, package) == ""
    assert hash_uncommitted_changes(package) != before
