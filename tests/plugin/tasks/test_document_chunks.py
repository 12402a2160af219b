"""Documents in chunks: joining, counting and splitting them, and the command that scores them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relumt.cli import main
from relumt.errors import UserError
from relumt.plugin.tasks.document_chunks import chunks_per_document, find_mismatches, split_chunks


def test_chunks_are_counted_by_document():
    assert chunks_per_document([2, 1, 3], [3, 3]) == [2, 1]
    with pytest.raises(UserError, match="a chunk crosses the end of document 1"):
        chunks_per_document([2, 2], [3, 1])
    with pytest.raises(UserError, match="the chunks have 4 sentences, but the documents have 5"):
        chunks_per_document([2, 2], [5])


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=5), min_size=1, max_size=5))
def test_counts_of_chunks_are_recovered(documents):
    chunks = [sentences for document in documents for sentences in document]
    assert chunks_per_document(chunks, list(map(sum, documents))) == list(map(len, documents))


def test_a_chunk_with_a_mismatch_is_kept_on_one_line():
    translated, chunks = ["a | b", "c d", "e"], [2, 2, 1]
    assert split_chunks(["a b || x|y | c", "d"], [2, 1], "|") == ["a b || x|y", "c", "d"]
    assert find_mismatches(translated, chunks, "|") == [1]
    assert split_chunks(translated, chunks, "|") == ["a", "b", "c d", "", "e"]


@pytest.fixture
def files(tmp_path):
    texts = {
        "hyp": ["a b c d | e f g h i", "j k l m n o p q"], "chunks": ["2", "2"], "docs": ["2", "2"],
        "ref": ["a b c d", "e f g h i", "j k l m", "n o p q"],
        "empty": [],
    }  # fmt: skip
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def score(files, *arguments):
    named = ("--hyp", files / "hyp", "--ref", files / "ref", "--docs", files / "docs", "--chunks", files / "chunks")
    main(["score-documents", *map(str, (*named, *arguments))])


@pytest.mark.parametrize(
    ("chunks", "mismatches"),
    [(["a b c d | e f g h i", "j k l m n o p q"], 1), (["a b c d| e f g h i", "j k l m|n o p q"], 0)],
)
def test_the_command_scores_documents_and_sentences(files, capsys, chunks, mismatches):
    (files / "hyp").write_text("".join(f"{chunk}\n" for chunk in chunks))
    score(files, "--separator", "|")
    result = json.loads(capsys.readouterr().out)
    assert result["d-BLEU"]["score"] == pytest.approx(100)
    assert (result["s-BLEU"]["score"] == pytest.approx(100)) == (mismatches == 0)
    assert (result["documents"], result["chunks with another number of separators"]) == (2, mismatches)
    assert "tok:13a" in result["d-BLEU"]["signature"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--chunks", "ref"), "ref:1: expected a number of sentences, found 'a b c d'"),
        (("--hyp", "ref"), "has 4 lines, but"),
        (("--hyp", "empty"), "empty has 0 lines, but"),
    ],
)
def test_mistakes_end_in_one_line(files, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        score(files, *((files / a if not a.startswith("--") else a) for a in arguments))
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in error and error.count("\n") == 1
