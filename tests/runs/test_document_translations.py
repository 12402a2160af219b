"""Chunks put beside their references, as documents: the same texts whatever the chunks and the subwords are."""

import dataclasses

import pytest

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from relumt.runs.document_translations import align_documents
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
