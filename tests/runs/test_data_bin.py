import json
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.data_bin import open_data_bin
from tests.runs.cases import PREPARED, index, write_data_bin


@pytest.mark.parametrize(
    ("symbols", "subwords", "tokenized"),
    [
        (("a@@", "b"), "subword-nmt", True),
        (("▁a", "b"), "sentencepiece", False),
        (("a", "b"), "none", True),
        # a few words look like subwords by chance
        (("user@@", "▁", *map(str, range(1000))), "none", True),
    ],
)
def test_subwords_of_a_plain_data_bin_are_guessed_from_its_dictionary(tmp_path, symbols, subwords, tokenized):
    data_bin = open_data_bin(write_data_bin(tmp_path / "bin", symbols))
    assert (data_bin.source, data_bin.target, data_bin.prepared) == ("de", "en", False)
    assert (data_bin.bpe, data_bin.tokenized) == (subwords, tokenized)


def test_a_prepared_data_bin_is_described_by_prepare_json(tmp_path):
    record = PREPARED | {"lowercased": True, "plain_references": True, "options": {"tokenized_input": True}}
    data_bin = open_data_bin(write_data_bin(tmp_path / "bin", record=record))
    assert (data_bin.bpe, data_bin.punctuation_normalized) == ("none", False)
    assert data_bin.prepared and data_bin.tokenized and data_bin.lowercased and data_bin.plain_references


def test_missing_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"expected one training set .*, found 0"):
        open_data_bin(tmp_path)
    folder = write_data_bin(tmp_path / "bin")
    (folder / "test.de-en.en.idx").unlink()
    with pytest.raises(UserError, match="the data-bin has no subset 'test'"):
        open_data_bin(folder).require_subset("test")
    (folder / "dict.en.txt").unlink()
    with pytest.raises(UserError, match=r"dict\.en\.txt: no such file"):
        open_data_bin(folder)


def test_the_index_of_another_format_or_a_damaged_one_is_refused(tmp_path):
    data_bin = open_data_bin(write_data_bin(tmp_path / "bin", sentences=3))
    path = data_bin.index_path("test", "de")
    path.write_bytes(index(2, length=7))
    assert data_bin.num_sentences("test") == 3 and data_bin.longest("test") == [(7, 2), (1, 3)]
    for content in (b"TNTIDX\0\0" + index(2), index(9)[:40], b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"test\.de-en\.de\.idx: not a complete index of --dataset-impl mmap; prep"):
            data_bin.longest("test")


EDITS = {
    "references reversed": (["text/test.en"], lambda text: b"".join(text.splitlines(keepends=True)[::-1])),
    "raw references": (["text/test.raw.en"], bytes.upper),
    "sides swapped": (["test.de-en.de.bin", "test.de-en.en.bin"], None),
    "dictionary reordered": (["dict.en.txt"], lambda text: b"".join(text.splitlines(keepends=True)[::-1])),
    "training text": (["train.de-en.de.bin"], bytes.upper),
    "subsets removed": (["text/test.subsets.json"], None),
}
"""Files that are edited after the data-bin was prepared, and how; without a function they are swapped or removed."""


def prepared_bin(folder: Path) -> Path:
    """A data-bin with reference texts whose prepare.json has the checksum of every file."""
    write_data_bin(folder)
    (folder / "text").mkdir()
    contents = {"test.de-en.de.bin": "ab", "test.de-en.en.bin": "cd", "train.de-en.de.bin": "ef"}
    contents |= {"text/test.en": "a\nb\n", "text/test.raw.en": "a\nb\n", "text/test.subsets.json": "{}"}
    for name, text in contents.items():
        (folder / name).write_text(text)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    files = {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"plain_references": True, "files": files}))
    return folder


def checksums(folder: Path) -> tuple[object, ...]:
    """What training and evaluation record of a data-bin."""
    data_bin = open_data_bin(folder)
    training, evaluation = data_bin.training_checksum("train"), data_bin.evaluation_checksum("test")
    return training, evaluation, data_bin.dictionaries()


@pytest.mark.parametrize("edit", EDITS)
def test_files_that_were_changed_after_preparing_are_refused_by_name(tmp_path, edit):
    names, change = EDITS[edit]
    folder = prepared_bin(tmp_path / "bin")
    paths = [folder / name for name in names]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.unlink()
        if change or len(paths) > 1:
            path.write_bytes(change(content) if change else content)
    with pytest.raises(UserError, match=rf"{names[0]}: was changed after the data-bin was prepared"):
        checksums(folder)


def test_the_checksums_in_prepare_json_do_not_change_what_is_recorded(tmp_path):
    """So runs that were trained before go on; a file that is none of relumt's, as train1, counts as before."""
    folder = prepared_bin(tmp_path / "bin")
    (folder / "train1.de-en.de.bin").write_text("gh")
    with_files = checksums(folder)
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"plain_references": True}))
    assert checksums(folder) == with_files
