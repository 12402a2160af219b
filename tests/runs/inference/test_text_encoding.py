"""Text becomes a model's input by the steps that prepared the data-bin."""

import json
import shutil
from dataclasses import replace

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from relumt.corpora.published_corpora import CORPORA
from relumt.corpora.tokenization import normalize_punctuation, tokenize
from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from relumt.runs.inference.export import write_preparation
from relumt.runs.inference.text_encoding import load_encoding
from tests.corpora.cases import PAIRS, write_bitext

PREPARATIONS = {
    "subword-nmt": ("--vocab-size", "100", "--tokenize", "--lowercase"),
    "sentencepiece": ("--bpe", "sentencepiece", "--vocab-size", "80"),
}


def open_encoding(data, is_tokenized=False, languages=("de", "en")):
    source, target = languages
    config = TranslationConfig(data=str(data), source_lang=source, target_lang=target)
    return load_encoding(data, TranslationTask.setup_task(config), is_tokenized)


def test_the_opposite_direction_is_refused(prepared):
    with pytest.raises(UserError, match="translates de-en, but the model en-de; give the data-bin that"):
        open_encoding(prepared, languages=("en", "de"))


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


def test_text_that_no_data_bin_holds_as_tokens_is_not_read_as_tokens(prepared, tmp_path):
    for name in ("dict.de.txt", "dict.en.txt"):
        shutil.copy(prepared / name, tmp_path)
    record = json.loads((prepared / "prepare.json").read_text()) | {"tokenized": False, "bpe": "none"}
    (tmp_path / "prepare.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="reads plain text; drop --tokenized"):
        open_encoding(tmp_path, is_tokenized=True)


def test_punctuation_is_normalized_if_the_corpus_did(prepared):
    encoding = open_encoding(prepared)
    normalizing = replace(encoding, data_bin=replace(encoding.data_bin, punctuation_normalized=True))
    kept, normalized = encoding.encode(["Der „Hund“ frisst."])[0], normalizing.encode(["Der „Hund“ frisst."])[0]
    assert normalized.tolist() == encoding.encode(['Der "Hund" frisst.'])[0].tolist() != kept.tolist()


@pytest.mark.parametrize("corpus", [CORPORA["wmt14_en_de"], CORPORA["iwslt14_de_en"]])
def test_a_corpus_says_whether_it_normalizes_punctuation(corpus):
    line = ["„hund“ – ein’s"]
    expected = normalize_punctuation(line, "de") if corpus.punctuation_normalized else line
    assert corpus.preprocess(line, "de") == tokenize(expected, "de")


def test_unknown_words_and_special_symbols_become_the_unknown_word(prepared):
    encoding = open_encoding(prepared, is_tokenized=True)
    symbols = encoding.source
    (tokens,) = replace(encoding, segment=list).encode(["<pad> 漢 </s> <s> <unk>"])
    assert tokens.tolist() == [symbols.unk()] * 5 + [symbols.eos()]
    assert [x.tolist() for x in encoding.encode(["", " \t\ufeff"])] == [[symbols.eos()]] * 2


def test_lines_that_are_no_sentences_are_refused(prepared):
    with pytest.raises(UserError, match=r"^line 5: has 60000 characters, .* split it$"):
        open_encoding(prepared).encode(["a", "b" * 60_000], first_number=4)
    with pytest.raises(UserError, match=r"^line 1: is not Unicode"):
        open_encoding(prepared).encode(["\ud800"])


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"#version: 0.2\na b c d\n"])
def test_missing_or_damaged_subwords_are_refused_in_one_line(prepared, tmp_path, capfd, content):
    data = shutil.copytree(prepared, tmp_path / "data")
    record = json.loads((data / "prepare.json").read_text())
    del record["bpe_sha256"]  # as in data-bins that do not have it
    (data / "prepare.json").write_text(json.dumps(record))
    (data / "bpe.codes").unlink() if content is None else (data / "bpe.codes").write_bytes(content)
    with pytest.raises(UserError, match=r"bpe.codes: (no such file|damaged)[^\n]*$"):
        open_encoding(data)
    assert capfd.readouterr().err == ""


def test_subwords_of_another_data_bin_are_refused(prepared, tmp_path):
    data, model = shutil.copytree(prepared, tmp_path / "data"), tmp_path / "model"
    model.mkdir()
    write_preparation(model, open_data_bin(data))
    for folder in (data, model):
        open_encoding(folder)
        (folder / "bpe.codes").write_text("#version: 0.2\na b\n")
        with pytest.raises(UserError, match=r"bpe.codes: damaged, or of another data-bin \(its checksum is not"):
            open_encoding(folder)
