"""Text becomes a model's input by the steps that prepared the data-bin."""

import shutil
from dataclasses import replace

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin, write_preparation
from relumt.runs.inference.text_encoding import load_encoding
from tests.corpora.cases import PAIRS, write_bitext

PREPARATIONS = {
    "subword-nmt": ("--vocab-size", "100", "--tokenize", "--lowercase"),
    "sentencepiece": ("--bpe", "sentencepiece", "--vocab-size", "80"),
}


def open_encoding(data, is_tokenized=False):
    config = TranslationConfig(data=str(data), source_lang="de", target_lang="en")
    return load_encoding(data, TranslationTask.setup_task(config), is_tokenized)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The data-bin of a bitext, tokenized, lowercased and split by subword-nmt."""
    bitext = write_bitext(tmp_path_factory.mktemp("text") / "bitext")
    bitext.prepare(*PREPARATIONS["subword-nmt"])
    return bitext.out


def assert_test_set_is_encoded(data):
    encoding = open_encoding(data)
    sources, targets = (MMapIndexedDataset(str(data / f"test.de-en.{language}")) for language in ("de", "en"))
    test = PAIRS[4:7]
    encoded = encoding.encode([f" {source}\r\n" for source, _ in test])
    assert [tokens.tolist() for tokens in encoded] == [sources[i].tolist() for i in range(3)]
    texts = [target.lower() if encoding.data_bin.lowercased else target for _, target in test]
    assert encoding.decode(targets[i] for i in range(3)) == texts


def test_a_test_set_becomes_what_the_data_bin_holds(prepared, tmp_path):
    assert_test_set_is_encoded(prepared)
    bitext = write_bitext(tmp_path / "bitext")
    bitext.prepare(*PREPARATIONS["sentencepiece"])
    assert_test_set_is_encoded(bitext.out)


def test_tokens_are_neither_split_nor_joined(prepared):
    encoding, plain = open_encoding(prepared, is_tokenized=True), open_encoding(prepared)
    (tokens,) = encoding.encode(["Jörg &apos; s Hund , der frisst ."])
    assert tokens.tolist() == plain.encode(["Jörg's Hund, der frisst."])[0].tolist()
    assert encoding.decode([tokens]) == ["jörg &apos; s hund , der frisst ."]


def test_punctuation_is_normalized_if_the_corpus_did(prepared):
    encoding = open_encoding(prepared)
    normalizing = replace(encoding, data_bin=replace(encoding.data_bin, punctuation_normalized=True))
    kept, normalized = encoding.encode(["Der „Hund“ frisst."])[0], normalizing.encode(["Der „Hund“ frisst."])[0]
    assert normalized.tolist() == encoding.encode(['Der "Hund" frisst.'])[0].tolist() != kept.tolist()


def test_unknown_words_and_special_symbols_become_the_unknown_word(prepared):
    encoding = open_encoding(prepared, is_tokenized=True)
    symbols = encoding.source
    (tokens,) = replace(encoding, segment=list).encode(["<pad> 漢 </s> <s> <unk>"])
    assert tokens.tolist() == [symbols.unk()] * 5 + [symbols.eos()]
    assert [x.tolist() for x in encoding.encode(["", " \t\ufeff"])] == [[symbols.eos()]] * 2


def test_subwords_of_another_data_bin_are_refused(prepared, tmp_path):
    data, model = shutil.copytree(prepared, tmp_path / "data"), tmp_path / "model"
    model.mkdir()
    write_preparation(model, open_data_bin(data))
    for folder in (data, model):
        open_encoding(folder)
        (folder / "bpe.codes").write_text("#version: 0.2\na b\n")
        with pytest.raises(UserError, match=r"bpe.codes: damaged, or of another data-bin \(its checksum is not"):
            open_encoding(folder)
    (data / "bpe.codes").unlink()
    with pytest.raises(UserError, match=r"bpe.codes: no such file"):
        open_encoding(data)
