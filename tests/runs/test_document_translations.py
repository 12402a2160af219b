"""Translated chunks, paired with references as documents and as sentences."""

import dataclasses
from itertools import accumulate, pairwise

import pytest

from relumt.plugin.tasks.document_chunks import detach_separators
from relumt.runs.data_bin import open_data_bin
from relumt.runs.document_translations import Chunks, align_documents
from relumt.runs.scores import score_translations
from relumt.runs.translations import GeneratedOutput
from tests.runs.cases import write_data_bin

REFERENCES = ['he said "well , yes . ', 'no " she replied .', "a third .", "a fourth ."]
DOCUMENTS = [3, 1]


@pytest.fixture
def data_bin(tmp_path):
    folder = write_data_bin(tmp_path / "bin")
    (folder / "text").mkdir()
    lines = [" ".join(line.split()) for line in REFERENCES]
    (folder / "text" / "test.en").write_text("".join(f"{line}\n" for line in lines))
    return dataclasses.replace(open_data_bin(folder), prepared=True, tokenized=True)


def align(data_bin, chunks, hypotheses, separator="<sep>"):
    generated = GeneratedOutput(dict(enumerate(hypotheses)), {})
    lines = [detach_separators(line, separator) for line in hypotheses]
    return align_documents(Chunks("test", lines, chunks, DOCUMENTS, separator), generated, data_bin)


@pytest.mark.parametrize("chunks", [[3, 1], [2, 1, 1], [1, 2, 1], [1, 1, 1, 1]])
@pytest.mark.parametrize("tokenized", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_perfect_translation_without_separators_has_the_same_score_in_any_chunks(
    data_bin, chunks, tokenized, prepared
):
    """Quotes and full stops are tokenized and detokenized by what is before and after them, in other sentences too."""
    sentences = ["it is 5 ' tall .", "he said ' yes ' etc.", 'she left " it .', "the session is closed."]
    (data_bin.folder / "text" / "test.en").write_text("".join(f"{line}\n" for line in sentences))
    starts = list(accumulate(chunks, initial=0))
    lines = [" ".join(sentences[start:end]) for start, end in pairwise(starts)]
    generated = GeneratedOutput({}, dict(enumerate(lines)))
    data_bin = dataclasses.replace(data_bin, tokenized=tokenized, prepared=prepared)
    found = align_documents(Chunks("test", lines, chunks, DOCUMENTS, ""), generated, data_bin).documents
    assert found.hypotheses == found.references and found.tokenized_hypotheses == found.tokenized_references
    scores = score_translations(found, False, "en", ter=False)
    assert {name: score.score for name, score in scores.items()} == dict.fromkeys(scores, pytest.approx(100))


def test_separators_that_sentencepiece_attached_are_removed(data_bin):
    pieces = dataclasses.replace(data_bin, bpe="sentencepiece", tokenized=False)
    found = align(pieces, [2, 1, 1], ["hello world.<sep> good bye.", "d", "e"])
    assert found.documents.hypotheses == ["hello world. good bye. d", "e"]
    assert found.documents.tokenized_hypotheses == ["hello world . good bye . d", "e"]
    assert found.chunks == ["hello world. <sep> good bye.", "d", "e"]
    assert found.tokenized_chunks[0] == "hello world . <sep> good bye ."


def test_sentences_are_paired_with_their_references(data_bin):
    found = align(data_bin, [2, 1, 1], ["a <sep> b", "c <sep> d", "e"]).sentences
    assert found.tokenized_hypotheses == ["a", "b", "c d", "e"]
    assert found.tokenized_references == [" ".join(line.split()) for line in REFERENCES]
    assert len(found.hypotheses) == len(found.references) == 4


def test_references_of_fairseq_are_chunks(data_bin):
    plain = dataclasses.replace(data_bin, prepared=False)
    references = GeneratedOutput({0: "a", 1: "b", 2: "c"}, {0: "A . <sep> B .", 1: "C", 2: "D"})
    found = align_documents(Chunks("test", ["a", "b", "c"], [2, 1, 1], DOCUMENTS, "<sep>"), references, plain)
    assert found.documents.tokenized_references == ["A . B . C", "D"]
    assert found.sentences.references == ["A.", "B.", "C", "D"]
