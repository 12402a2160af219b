import json

import pytest

from relumt.errors import UserError
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


def test_checksums_do_not_depend_on_prepare_json(tmp_path):
    """So that runs go on after a new version of relumt; train1 is a file of fairseq's, which relumt does not write."""
    folder = write_data_bin(tmp_path / "bin", record=PREPARED)
    (folder / "train1.de-en.de.bin").write_text("gh")

    def checksums():
        data_bin = open_data_bin(folder)
        training, evaluation = data_bin.training_checksum("train"), data_bin.evaluation_checksum("test")
        return training, evaluation, data_bin.dictionaries()

    before = checksums()
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"files": {"dict.en.txt": "0"}}))
    assert checksums() == before
