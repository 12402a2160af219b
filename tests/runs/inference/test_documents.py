"""Documents are translated in chunks as long as the model was trained to read, else sentence by sentence."""

import io
import json
import sys
from dataclasses import replace
from itertools import groupby

import pytest
import torch

import relumt
from relumt.cli import main
from relumt.errors import UserError
from relumt.runs.inference.search import SearchSettings
from relumt.runs.inference.translator import Translator
from relumt.runs.inference.word_alignment import align_by_weights, merge_words
from tests.plugin.model.build import write_data_bin
from tests.runs.cases import scored_record, with_value
from tests.runs.inference.cases import LENGTHS, fairseq_generate, texts, write_text_data_bin

LIMIT = 16
DOCUMENTS = [4, 2]
TASK = ("--task", "translation_documents", "--document-length", str(LIMIT))
SEPARATOR = "w15"


@pytest.fixture(scope="module")
def document_data(tmp_path_factory):
    folder = write_text_data_bin(tmp_path_factory.mktemp("documents") / "data-bin")
    write_data_bin(folder, LENGTHS, "train")
    (folder / "test.docs").write_text("".join(f"{n}\n" for n in DOCUMENTS))
    return folder


@pytest.fixture
def load(lively_checkpoint, document_data):
    def load(*flags):
        return relumt.load(lively_checkpoint("--attention", "relu", *TASK, *flags), document_data, cpu=True)

    return load


def documents():
    sentences = iter(texts())
    return [[next(sentences) for _ in range(count)] for count in DOCUMENTS]


def test_chunks_are_translated_as_by_fairseq_generate(load, document_data, monkeypatch):
    """fairseq-generate's chunks are the same, because the references of both documents have up to LIMIT tokens, too."""
    translator = load()
    assert translator.search == SearchSettings(max_len_a=2)
    translator.search = SearchSettings(max_len_b=12)
    monkeypatch.setattr(Translator, "_is_whole", lambda *_: True)  # a model that was not trained does not end
    expected = fairseq_generate(translator.loaded.path, document_data, *TASK, "--max-len-b", "12")
    found = translator.translate_documents(documents())
    assert [len(chunks) for chunks in found] == [1, 1]
    for number, (chunk,) in enumerate(found):
        score, text = expected[f"D-{number}"][0]
        assert chunk.sentences == [chunk.text] == [text] and chunk.score == pytest.approx(score, abs=1e-4)
        assert chunk.source_tokens == " ".join(documents()[number]).split()


@pytest.fixture
def echoing(monkeypatch):
    """Replace the search by one that returns the source; record sources.

    If the source begins with w8, separators are lost; if it begins with w7, one is added.
    """
    searched = []

    def search(loaded, sources, settings, batch_size):
        separator, losing, adding = (loaded.task.source_dictionary.index(word) for word in (SEPARATOR, "w8", "w7"))
        for source in sources:
            searched.append([loaded.task.source_dictionary[index] for index in source[:-1].tolist()])
            target = source[source != separator] if source[0] == losing else source
            if source[0] == adding:
                target = torch.cat([source[:1], torch.tensor([separator]), source])
            yield [{"tokens": target, "score": torch.tensor(-1.0), "positional_scores": torch.zeros(len(target))}]

    monkeypatch.setattr("relumt.runs.inference.translator.search_hypotheses", search)
    return searched


@pytest.mark.parametrize(
    ("separator", "document", "chunks"),
    [
        ("", ["w1 " * 5, "w2 " * 5, "w3 " * 5, "w4"], ["w1w1w1w1w1w2w2w2w2w2w3w3w3w3w3", "w4"]),  # 15 and the end
        (SEPARATOR, ["w1 " * 5, "w2 " * 5, "w3 " * 3, "w4"], ["w1w1w1w1w1,w2w2w2w2w2,w3w3w3", "w4"]),
        (SEPARATOR, ["w1 " * 5, "w2 " * 5, "w3 " * 4, "w4"], ["w1w1w1w1w1,w2w2w2w2w2", "w3w3w3w3,w4"]),
        (SEPARATOR, ["w1", "w2 " * 40, "w3", "w4"], ["w1", "w2" * 40, "w3,w4"]),
        # separators are lost: sentence by sentence
        (SEPARATOR, ["w8", "w2", "w3"], ["w8", "w2", "w3"]),
        ("", ["w8", "w2", "w3"], ["w8w2w3"]),
        (SEPARATOR, ["w7", "w2"], ["w7w7", "w2"]),  # the separator within a single sentence ends none
    ],
)
def test_a_chunk_is_as_long_as_the_model_was_trained_to_read(load, echoing, separator, document, chunks):
    translator = load("--document-separator", separator) if separator else load()
    empty, found, other = translator.translate_documents([[], document, ["w5"]])
    sentences = [chunk.replace("w", " w").strip().split(",") for chunk in chunks]
    assert [[" ".join(text.split()) for text in chunk.sentences] for chunk in found] == [
        [" ".join(text.split()) for text in chunk] for chunk in sentences
    ]
    assert [chunk.text for chunk in found] == [" ".join(chunk.sentences) for chunk in found]
    assert empty == [] and [chunk.text for chunk in other] == ["w5"]
    assert len(echoing) == len(chunks) + (2 if {"w7", "w8"} & set(document) and separator else 1)


def test_a_translation_that_was_cut_off_is_made_again_by_sentences(load, echoing):
    translator = load()
    for max_len_b, num_chunks in ((9, 1), (8, 2)):  # the chunk has 8 words
        translator.search = SearchSettings(max_len_b=max_len_b)
        (found,) = translator.translate_documents([["w1 " * 5, "w2 " * 3]])
        assert len(found) == num_chunks
    translator.search = SearchSettings(max_len_b=5)
    (found,) = translator.translate_documents([["w1 " * 7]])
    assert len(found) == 1, "a single sentence is not made again"


def test_without_context_and_with_a_model_of_sentences_each_sentence_is_alone(load, translator):
    (found,) = translator.translate_documents([texts()])
    assert found == translator.translate(texts())
    model = load("--document-separator", SEPARATOR)
    model.search = translator.search
    alone = model.translate(texts())
    assert [len(one.sentences) for one in alone] == [1] * len(alone)
    for unusable in (["w1", " "], ["w1", "w2 " * 2000]):
        with pytest.raises(UserError, match=r"^document 2, sentence 2.? has "):
            model.translate_documents([["w1"], unusable])


def test_the_search_is_that_of_the_evaluation_or_else_one_for_documents(load, document_data, monkeypatch, tmp_path):
    path = load().loaded.path
    options = ["--data", str(document_data), "--to", "safetensors", "--out"]
    for flags, max_len_a in (({"--beam": "5"}, 0), (None, 2)):
        record = flags and with_value(scored_record(), "evaluations.test.setup.flags", flags)
        for module in ("translator", "export"):
            monkeypatch.setattr(
                f"relumt.runs.inference.{module}.find_record_of_checkpoint", lambda _, record=record: record
            )
        exported = tmp_path / str(max_len_a)
        main(["export", str(path), *options, str(exported)])
        for one in (path, exported):
            assert relumt.load(one, document_data, cpu=True).search == SearchSettings(max_len_a=max_len_a)


@pytest.fixture
def translate(monkeypatch, capsys, load, echoing):
    """Return a function that runs the command on a text with a model of documents, and returns its lines."""
    model = load("--document-separator", SEPARATOR)
    monkeypatch.setattr("relumt.runs.inference.translator.load", lambda *_: model)

    def run(content, *flags):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        main(["translate", "a run", *flags])
        return capsys.readouterr().out.split("\n")[:-1]

    return run


TEXT = "\n w1 w2\nw3\n \n\nw8 w4\nw5\nw6\n\nw4"


@pytest.mark.parametrize("flags", [(), ("--batch", "1"), ("--batch", "2")])
def test_empty_lines_end_documents(translate, echoing, flags):
    assert translate(TEXT, *flags) == ["w1 w2", "w3", "", "w8 w4", "w5", "w6", "", "w4"]
    assert ["w1", "w2", SEPARATOR, "w3"] in echoing


def test_without_context_lines_in_are_lines_out(translate, echoing):
    assert translate("w1 w2\nw3\nw4", "--context", "none") == ["w1 w2", "w3", "w4"]
    assert echoing == [["w1", "w2"], ["w3"], ["w4"]]


def test_json_has_a_line_for_each_chunk(translate):
    lines = [json.loads(line) for line in translate(TEXT, "--json")]
    numbers = [(number, len(list(group))) for number, group in groupby(line["document"] for line in lines)]
    assert numbers == [(1, 1), (2, 3), (3, 1)] and lines[0]["sentences"] == ["w1 w2", "w3"]
    assert lines[0]["source_tokens"] == ["w1", "w2", SEPARATOR, "w3"]
    with pytest.raises(SystemExit, match="2"):
        translate(TEXT, "--json", "--nbest", "2")


def test_alignments_of_words_by_hand(translator):
    weights = torch.tensor([[0.3, 0.3, 0.4, 0.0], [0.0, 0.2, 0.8, 0.0], [0.9, 0.0, 0.0, 0.1], [0.0, 0.0, 0.0, 1.0]])
    merged = merge_words(weights, ["a@@", "b", "c"], ["x", "y@@", "z"], "subword-nmt")
    torch.testing.assert_close(merged, torch.tensor([[0.6, 0.4, 0.0], [0.55, 0.4, 0.05], [0.0, 0.0, 1.0]]))
    assert align_by_weights(merged).links == [(0, 0), (0, 1)]
    assert align_by_weights(weights).links == [(2, 0), (2, 1), (0, 2)]
    pieces = replace(translator.encoding, data_bin=replace(translator.encoding.data_bin, bpe="sentencepiece"))
    translation = translator.translate(["w1 w2 w3"])[0]
    (by_subwords,), (by_words,) = (translator.align([translation], unit=unit) for unit in ("subwords", "words"))
    assert by_subwords.links == by_words.links and torch.equal(by_subwords.weights, by_words.weights)
    translator.encoding, kept = pieces, translator.encoding
    (alignment,) = translator.align([translation], unit="words")
    words = translator.words(translation.source_tokens)
    translator.encoding = kept
    assert words == ["w1w2w3"] and alignment.weights.shape == (2, 2) and alignment.links == [(0, 0)]
