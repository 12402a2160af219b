"""What is scored: subsets of a test set, documents, and documents whose sentences were translated one by one."""

import json

import pytest

from relumt.runs.evaluation_results import SINGLE_SENTENCES
from relumt.runs.evaluation_steps import score_pending, start_evaluation, start_one_by_one
from relumt.runs.record import load_record
from tests.runs.cases import index, train, write_dataset, write_prepared

DOCUMENTS = "--task translation_documents --document-length 2 --document-separator <sep>"
CHUNKS = ["a b c d e <sep> f g h i j", "k l m n o", "p q r s t"]
"""Documents of 3 and 1 sentences; of the first, only two sentences fit into a chunk."""


def write_test_set(folder, sentences):
    for language in ("de", "en"):
        (folder / f"test.de-en.{language}.idx").write_bytes(index(sentences))
        (folder / f"test.de-en.{language}.bin").write_bytes(bytes(2 * sentences))


def write_output(folder, hypotheses, references):
    """Write what fairseq-generate would."""
    folder.mkdir(exist_ok=True)
    pairs = enumerate(zip(hypotheses, references, strict=True))
    lines = (f"T-{n}\t{reference}\nD-{n}\t-1\t{hypothesis}\n" for n, (hypothesis, reference) in pairs)
    (folder / "generate-test.txt").write_text(f"{''.join(lines)}Generate test with beam=5: BLEU4 = 0\n")
    (folder / "generate-test.log").write_text("")


def test_subsets_are_scored_without_the_lines_that_they_leave_out(config, step):
    folder = config.data_bin.folder
    write_prepared(folder, test="a b c d e\na b c d e\n")
    (folder / "text" / "test.subsets.json").write_text(json.dumps({"without the second": [1]}))
    write_test_set(folder, 2)
    train(config, step)
    step(start_evaluation)
    write_output(config.folder, ["a b c d e", "x y z v w"], ["a b c d e"] * 2)
    step(score_pending)
    scored = load_record(config.folder).test_evaluation
    part = scored.subsets["without the second"]
    assert part.sentences == 1 and part.scores["bleu_tokenized"].score == pytest.approx(100)
    assert scored.scores["bleu_tokenized"].score < 60


@pytest.fixture
def documents(config, configs, step):
    """A trained run on documents."""
    write_dataset(configs, "small", train=f"--lr 1e-3 --max-epoch 2 --max-tokens 100 --optimizer adam {DOCUMENTS}")
    write_test_set(config.data_bin.folder, 4)
    (config.data_bin.folder / "test.docs").write_text("3\n1\n")
    train(config, step)
    return config


def test_documents_are_scored_as_wholes_and_by_sentence(documents, step):
    step(start_evaluation)
    write_output(documents.folder, [CHUNKS[0].replace("c d", "x x"), *CHUNKS[1:]], CHUNKS)
    step(score_pending)
    scored = load_record(documents.folder).test_evaluation
    found = scored.documents
    assert (scored.sentences, found.chunks, found.documents, found.separator_mismatches) == (4, 3, 2, 0)
    assert 60 < scored.scores["bleu_tokenized"].score < found.sentence_scores["bleu_tokenized"].score < 100
    assert (documents.folder / "test.chunks").read_text() == "2\n1\n1\n"
    assert (documents.folder / "test.documents.ref.tok").read_text() == "a b c d e f g h i j k l m n o\np q r s t\n"


def test_chunks_that_lost_a_separator_are_put_together_from_single_sentences(documents, step):
    step(start_evaluation, settings=["--one-by-one"])
    write_output(documents.folder, ["x", *CHUNKS[1:]], CHUNKS)
    assert step(start_one_by_one).result
    single = [sentence for chunk in CHUNKS for sentence in chunk.split(" <sep> ")]
    write_output(documents.folder / SINGLE_SENTENCES, single, single)
    step(score_pending)
    scored = load_record(documents.folder).test_evaluation
    assert (scored.documents.separator_mismatches, scored.documents.translated_one_by_one) == (1, True)
    assert scored.scores["bleu_tokenized"].score == pytest.approx(100)
