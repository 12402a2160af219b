import pytest

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from tests.runs.cases import write_data_bin

RECORD = {
    "source": "de",
    "target": "en",
    "bpe": "none",
    "tokenized": True,
    "lowercased": True,
    "plain_references": True,
    "options": {"tokenized_input": True},
}


@pytest.mark.parametrize(
    ("symbols", "subwords", "tokenized"),
    [
        (("a@@", "b"), "subword-nmt", True),
        (("▁a", "b"), "sentencepiece", False),
        (("a", "b"), "none", True),
        # words that happen to look marked are far fewer than subwords
        (("user@@", "▁", *map(str, range(1000))), "none", True),
    ],
)
def test_plain_data_bin_tells_its_subwords_by_the_dictionary(tmp_path, symbols, subwords, tokenized):
    data_bin = open_data_bin(write_data_bin(tmp_path / "bin", symbols))
    assert (data_bin.source, data_bin.target, data_bin.prepared) == ("de", "en", False)
    assert (data_bin.subwords, data_bin.tokenized) == (subwords, tokenized)


@pytest.mark.parametrize("plain", [True, False])
def test_prepared_data_bin_says_it_itself(tmp_path, plain):
    record = RECORD | {"plain_references": plain}
    data_bin = open_data_bin(write_data_bin(tmp_path / "bin", record=record))
    assert data_bin.subwords == "none"
    assert data_bin.prepared and data_bin.tokenized and data_bin.lowercased
    assert data_bin.plain_reference is plain


def test_a_record_of_before_says_by_its_options_whether_references_are_plain(tmp_path):
    record = {key: value for key, value in RECORD.items() if key != "plain_references"}
    assert open_data_bin(write_data_bin(tmp_path / "bin", record=record)).plain_reference is False


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match="0 training sets"):
        open_data_bin(tmp_path)
    folder = write_data_bin(tmp_path / "bin")
    (folder / "test.de-en.en.idx").unlink()
    with pytest.raises(UserError, match="no 'test'"):
        open_data_bin(folder).require("test")
    (folder / "dict.en.txt").unlink()
    with pytest.raises(UserError, match=r"dict\.en\.txt: no such file"):
        open_data_bin(folder)


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_broken_record_is_refused(tmp_path, text):
    folder = write_data_bin(tmp_path / "bin")
    (folder / "prepare.json").write_text(text)
    with pytest.raises(UserError, match=r"prepare\.json: not a record"):
        open_data_bin(folder)
