"""Chunks put beside their references, as documents: the same texts whatever the chunks and the subwords are."""

import dataclasses

import pytest

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from relumt.runs.document_translations import (
    align_documents,
    came_apart_otherwise,
    one_by_one,
    sentences_of_chunks,
)
from relumt.runs.translations import Generated
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


def aligned(data_bin, chunks, hypotheses, separator="<sep>"):
    generated = Generated(dict(enumerate(hypotheses)), {})
    return align_documents(generated, data_bin, "test", chunks, DOCUMENTS, separator)


def test_chunks_become_documents_without_separators(data_bin):
    found = aligned(data_bin, [2, 1, 1], ["a , b <sep> c .", "d", "e ."])
    assert found.documents.tokenised_hypotheses == ["a , b c . d", "e ."]
    assert found.documents.hypotheses == ["a, b c. d", "e."]
    assert found.tokenised_chunks == ["a , b <sep> c .", "d", "e ."]
    assert found.chunks == ["a, b <sep> c.", "d", "e."]


@pytest.mark.parametrize("chunks", [[3, 1], [2, 1, 1], [1, 1, 1, 1]])
def test_references_are_the_same_whatever_the_chunks(data_bin, chunks):
    one = aligned(data_bin, [3, 1], ["x", "y"])
    other = aligned(data_bin, chunks, ["x"] * len(chunks))
    assert other.documents.references_sha256() == one.documents.references_sha256()
    assert len(other.documents.references) == 2


def test_sentencepiece_glues_separators_which_come_off_again(data_bin):
    pieces = dataclasses.replace(data_bin, subwords="sentencepiece", tokenized=False)
    found = aligned(pieces, [2, 1, 1], ["hello world.<sep> good bye.", "d", "e"])
    assert found.documents.hypotheses == ["hello world. good bye. d", "e"]
    assert found.documents.tokenised_hypotheses == ["hello world . good bye . d", "e"]
    assert found.chunks[0] == "hello world. <sep> good bye."


def test_plain_text_is_tokenised_between_separators(data_bin):
    plain = dataclasses.replace(data_bin, subwords="subword-nmt", tokenized=False)
    found = aligned(plain, [2, 1, 1], ["hello, you <sep> bye.", "d", "e"])
    assert found.tokenised_chunks[0] == "hello , you <sep> bye ."
    assert found.documents.tokenised_hypotheses[0] == "hello , you bye . d"


def test_a_chunk_that_was_not_translated_is_named(data_bin):
    with pytest.raises(UserError, match="sentence 3 and 0 more of 3 lack a translation"):
        aligned(data_bin, [2, 1, 1], ["a", "b"])


def test_chunks_that_lost_separators_are_taken_sentence_by_sentence(data_bin):
    generated = Generated({0: "a", 1: "c <sep> d", 2: "e"}, {})
    chunks = [2, 1, 1]
    others = came_apart_otherwise(generated, chunks, "<sep>")
    assert others == [0, 1]
    sentences = Generated(dict(enumerate(["A <sep>", "B", "C", "D"])), {})
    replaced = one_by_one(generated, sentences, chunks, others, "<sep>")
    assert replaced.hypotheses == {0: "A <sep> B", 1: "C", 2: "e"}
    assert came_apart_otherwise(replaced, chunks, "<sep>") == []
    with pytest.raises(UserError, match="sentence 4 and 0 more of 4 lack a translation"):
        one_by_one(generated, Generated(dict(enumerate("ABC")), {}), chunks, others, "<sep>")


def test_sentences_stand_beside_their_references(data_bin):
    generated = Generated({0: "a <sep> b", 1: "c <sep> d", 2: "e"}, {})
    translated = align_documents(generated, data_bin, "test", [2, 1, 1], DOCUMENTS, "<sep>")
    found = sentences_of_chunks(translated, generated, data_bin, "test", [2, 1, 1], "<sep>")
    assert found.tokenised_hypotheses == ["a", "b", "c d", "e"]
    assert found.tokenised_references == [" ".join(line.split()) for line in REFERENCES]
    assert len(found.hypotheses) == len(found.references) == 4
