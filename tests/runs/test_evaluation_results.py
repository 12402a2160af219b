"""What is scored: subsets of a test set, and documents."""

import json

import pytest

from relumt.runs.record import load_record
from tests.runs.cases import Step, index, write_dataset, write_output, write_prepared

DOCUMENTS = "--task translation_documents --document-length 2 --document-separator <sep>"
CHUNKS = ["a b c d e <sep> f g h i j", "k l m n o", "p q r s t"]
"""Documents of 3 and 1 sentences; of the first, only two sentences fit into a chunk."""


def write_test_set(folder, sentences):
    for language in ("de", "en"):
        (folder / f"test.de-en.{language}.idx").write_bytes(index(sentences))
        (folder / f"test.de-en.{language}.bin").write_bytes(bytes(2 * sentences))


def test_subsets_are_scored_without_the_lines_that_they_leave_out(run, fairseq, config):
    folder = config.data_bin.folder
    write_prepared(folder, test="a b c d e\na b c d e\n")
    (folder / "text" / "test.subsets.json").write_text(json.dumps({"without the second": [1]}))
    write_test_set(folder, 2)
    fairseq.steps = [Step(), Step(output=write_output(["a b c d e", "x y z v w"], ["a b c d e"] * 2))]
    run("train")
    run("evaluate")
    scored = load_record(config.folder).test_evaluation
    part = scored.subsets["without the second"]
    assert part.sentences == 1 and part.scores["bleu_tokenized"].score == pytest.approx(100)
    assert scored.scores["bleu_tokenized"].score < 60


@pytest.fixture
def evaluate(run, fairseq, config, configs):
    """Train on documents, let fairseq-generate write these outputs, and return the evaluation."""
    write_dataset(configs, "small", train=f"--lr 1e-3 --max-epoch 2 --max-tokens 100 --optimizer adam {DOCUMENTS}")
    write_test_set(config.data_bin.folder, 4)
    (config.data_bin.folder / "test.docs").write_text("3\n1\n")

    def call(*outputs, options=()):
        fairseq.steps = [Step(), *(Step(output=write_output(*output)) for output in outputs)]
        run("train")
        run("evaluate", options=options)
        assert not fairseq.steps
        return load_record(config.folder).test_evaluation

    return call


def test_documents_are_scored_as_wholes_and_by_sentence(evaluate, config):
    scored = evaluate(([CHUNKS[0].replace("c d", "x x"), *CHUNKS[1:]], CHUNKS))
    found = scored.documents
    assert (scored.sentences, found.chunks, found.documents, found.separator_mismatches) == (4, 3, 2, 0)
    assert 60 < scored.scores["bleu_tokenized"].score < found.sentence_scores["bleu_tokenized"].score < 100
    assert (config.folder / "test.chunks").read_text() == "2\n1\n1\n"
    assert (config.folder / "test.documents.ref.tok").read_text() == "a b c d e f g h i j k l m n o\np q r s t\n"
