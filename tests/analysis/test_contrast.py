"""Contrastive accuracy: against log-probabilities computed sentence by sentence, and by hand."""

import json
import os
from statistics import fmean

import numpy as np
import pytest
import torch

from relumt.analysis.contrast import ContrastiveExample, ContrastiveTest, majority_accuracy
from relumt.cli import main
from relumt.errors import UserError
from relumt.inference.loaded_model import load_checkpoint_on_data
from tests.models.build import dictionary, write_data_bin

LENGTHS = [(7, 5), (3, 8), (4, 3), (6, 6), (4, 4), (9, 3)]
DOCUMENTS = [4, 2]


@pytest.fixture
def data(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin", LENGTHS)
    write_data_bin(folder, LENGTHS, "train")
    (folder / "test.docs").write_text("".join(f"{n}\n" for n in DOCUMENTS))
    return folder


def references(data):
    from fairseq.data.data_utils import load_indexed_dataset

    sentences = load_indexed_dataset(str(data / "test.de-en.en"), dictionary(), "mmap")
    return [sentences[i] for i in range(len(sentences))]


def write_examples(data, path, sentences=((0, 1), (0, 3), (1, 1))):
    firsts, texts = [0, DOCUMENTS[0]], [dictionary().string(tokens) for tokens in references(data)]
    with path.open("w") as file:
        for document, sentence in sentences:
            target = texts[firsts[document] + sentence]
            first, *rest = target.split()
            wrong = [" ".join([word, *rest]) for word in ("w1", "w2", "w3") if word != first][:2]
            example = {"document": document, "sentence": sentence, "source": "", "target": target, "wrong": wrong}
            file.write(json.dumps(example) + "\n")
    return path


def build_contrast(tmp_path, data, checkpoint_with, *flags):
    checkpoint = checkpoint_with("--task", "translation_documents", *flags)
    return ContrastiveTest(
        load_checkpoint_on_data(checkpoint, data, cuda=False), data, "test", write_examples(data, tmp_path / "x")
    )


@pytest.mark.parametrize(
    "flags", [(), ("--document-length", "16"), ("--document-length", "24", "--document-separator", "w9")]
)
def test_scores_are_conditioned_on_the_chunk(tmp_path, data, checkpoint_with, flags):
    contrast = build_contrast(tmp_path, data, checkpoint_with, *flags)
    model, dataset = contrast.loaded.model, contrast.loaded.task.dataset("test")
    texts, separator = references(data), [dictionary().index("w9")] * ("w9" in flags)
    expected = []
    for example in contrast.examples:
        chunk = np.searchsorted(contrast.chunk_bounds, example.sentence, side="right") - 1
        source = dataset[chunk]["source"]
        earlier = range(contrast.chunk_bounds[chunk], example.sentence)
        before = [token for i in earlier for token in [*texts[i].tolist()[:-1], *separator]]
        for variant in example.variants:
            words = [dictionary().index(word) for word in variant.split()]
            prefix = torch.tensor([[2, *before, *words]])
            logits, _ = model(source[None], torch.tensor([len(source)]), prefix)
            log_probs = logits.log_softmax(-1)[0, torch.arange(prefix.shape[1] - 1), prefix[0, 1:]]
            expected.append(log_probs[len(before) :].sum().item())
    assert contrast.scores(4) == pytest.approx(expected, rel=1e-4)
    assert contrast.scores(100) == pytest.approx(expected, rel=1e-4)
    if flags:
        assert len(contrast.chunk_bounds) - 1 < len(LENGTHS)
    first, others = np.array(expected).reshape(-1, 3)[:, 0], np.array(expected).reshape(-1, 3)[:, 1:]
    assert fmean(contrast.decisions(64)) == pytest.approx((first > others.max(1)).mean())


def test_majority_accuracy_by_hand():
    er, sie = ContrastiveExample(0, ("er lacht", "sie lacht")), ContrastiveExample(0, ("sie lacht", "er lacht"))
    ihn = ContrastiveExample(0, ("ich sehe ihn", "ich sehe sie"))
    assert majority_accuracy([er, sie, sie]) == pytest.approx(2 / 3)
    assert majority_accuracy([er, sie, sie, ihn, ihn]) == pytest.approx(4 / 5)
    assert majority_accuracy([er, sie, sie, ihn]) == pytest.approx(2.5 / 4), "alone with its choice: by chance"
    longer, shorter = (
        ContrastiveExample(0, ("er lacht laut", "er lacht")),
        ContrastiveExample(0, ("er lacht", "er lacht laut")),
    )
    cat, car = ContrastiveExample(0, ("the cat", "the dog")), ContrastiveExample(0, ("a red car", "a blue car"))
    assert majority_accuracy([cat, car]) == pytest.approx(1 / 2)
    assert majority_accuracy([longer, shorter]) == pytest.approx(1 / 2)


def test_the_command_prints_json(tmp_path, data, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--task", "translation_documents", "--document-length", "16")
    examples = write_examples(data, tmp_path / "x")
    main(["contrast", "--checkpoint", str(checkpoint), "--data", str(data), "--examples", str(examples)])
    result = json.loads(capsys.readouterr().out)
    assert result["examples"] == 3 and result["document_length"] == 16
    assert 0 <= result["accuracy"] <= 1 and result["majority_accuracy"] > 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "x:1: not in the expected format"),
        ("[]", "x:1: not in the expected format"),
        (
            '{"document": 2, "sentence": 0, "target": "w2", "wrong": ["w1"]}',
            "x:1: the test set has no sentence 0 in document 2",
        ),
        ('{"document": 1, "sentence": 0, "target": "w1", "wrong": ["w2"]}', "is not the reference in"),
        (None, "x: no such file"),
        ("", "x: expected contrastive examples, found an empty file"),
        ("\n{}", "x: expected contrastive examples, found an empty first line"),
        ('{"document": 0, "sentence": 0, "target": "w1", "wrong": []}', "x:1: not in the expected format"),
        ('{"document": 0, "sentence": 0, "target": "w1", "wrong": "w2"}', "x:1: not in the expected format"),
    ],
)
def test_invalid_examples_end_in_one_line(tmp_path, data, capsys, checkpoint_with, line, message):
    if line is not None:
        (tmp_path / "x").write_text(line and line + "\n")
    checkpoint = checkpoint_with()
    with pytest.raises(SystemExit) as stopped:
        main(["contrast", "--checkpoint", str(checkpoint), "--data", str(data), "--examples", str(tmp_path / "x")])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_examples_from_a_pipe_are_refused(tmp_path, data, capsys):
    """They are read twice, and what was buffered the first time would be missing."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SystemExit) as refusal:
        main(["contrast", "--checkpoint", "none", "--data", str(data), "--examples", str(tmp_path / "pipe")])
    assert refusal.value.code == 2
    assert "expected a file, which is read twice, found a pipe; write it to a file" in capsys.readouterr().err


def test_a_data_bin_without_documents_is_refused(tmp_path, data, checkpoint_with):
    (data / "test.docs").unlink()
    with pytest.raises(UserError, match=r"test\.docs: no such file"):
        build_contrast(tmp_path, data, checkpoint_with)
