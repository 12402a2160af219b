"""Contrastive examples with contexts of their own: against log-probabilities computed one by one, and by hand."""

import json

import pytest
import torch

from relumt.analysis.candidate_scores import score_candidates
from relumt.analysis.context_contrast import ContextTest, accuracies
from relumt.cli import main
from relumt.corpora.contrastive import ExampleInContext, read_examples_in_context, write_examples
from relumt.errors import UserError
from relumt.inference.loaded_model import load_checkpoint_on_data
from tests.models.build import dictionary, write_data_bin

SEPARATOR = "w9"
EXAMPLES = [
    ExampleInContext(
        "w1 w2", "w3 w4 w5", ["w3 w4 w6", "w7"], ["w1 w1 w1", "w2"], ["w4", "w5 w5"], 1, {"kind": "a"}, "x"
    ),
    ExampleInContext("w8", "w1", ["w2"], [], [], 0, {"kind": "b"}, "x"),
    ExampleInContext("w1 w4", "w1", ["w2 w1 w1"], ["w1 " * 9], ["w2"], None, {"kind": "a"}, "y"),
]


@pytest.fixture
def data(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin", [(3, 3)])
    return write_data_bin(folder, [(3, 3)], "train")


def tokens(words):
    return [dictionary().index(word) for word in words.split()]


def log_probability(loaded, source, before, variant):
    """The log-probability of a variant and the end of sentence after the tokens `before`."""
    source, prefix = torch.tensor([[*source, 2]]), torch.tensor([[2, *before, *tokens(variant)]])
    log_probs = loaded.model(source, torch.tensor([source.shape[1]]), prefix)[0].log_softmax(-1)[0]
    following = torch.tensor([*prefix[0, 1:].tolist(), 2])
    chosen = log_probs[torch.arange(len(following)), following]
    return chosen[len(before) : -1].sum().item()


@pytest.mark.parametrize(
    ("limit", "separator", "num_context"),
    [
        (0, "", [0, 0, 0]),
        (7, "", [2, 0, 0]),
        (6, "", [1, 0, 0]),
        (8, SEPARATOR, [1, 0, 0]),
        (9, SEPARATOR, [2, 0, 0]),
        (30, SEPARATOR, [2, 0, 1]),
    ],
)
def test_the_context_is_what_fits_into_a_chunk(data, checkpoint_with, limit, separator, num_context):
    """With both sentences before it, the first example has 7 tokens per side, and 9 with separators."""
    loaded = load_checkpoint_on_data(checkpoint_with("--task", "translation_documents"), data, cuda=False)
    loaded.task.cfg.document_length, loaded.task.cfg.document_separator = limit, separator
    test = ContextTest(loaded, data, EXAMPLES)
    expected = []
    for example, count in zip(EXAMPLES, num_context, strict=True):
        first = len(example.source_context) - count
        source = [token for words in example.source_context[first:] for token in tokens(f"{words} {separator}")]
        before = [token for words in example.target_context[first:] for token in tokens(f"{words} {separator}")]
        source += tokens(example.source)
        expected.append([log_probability(loaded, source, before, variant) for variant in example.variants])
    with torch.no_grad():
        decisions = test.decisions(batch_size=2)
    assert test.context_lengths == num_context
    scores = score_candidates(loaded, list(test.candidates()), batch_size=3)
    assert scores == pytest.approx([score for group in expected for score in group], rel=1e-4)
    assert decisions == [scores[0] > max(scores[1:]) for scores in expected]


def test_accuracies_by_hand():
    examples = [
        ExampleInContext("a", "b", ["c"], distance=distance, categories={"kind": kind}, block=block)
        for distance, kind, block in ((0, "a", "x"), (0, "b", "x"), (4, "a", "y"), (9, "a", "y"), (None, "b", ""))
    ]
    assert accuracies(examples, [True, False, True, True, True]) == {
        "accuracy_by_distance": {
            "0": {"examples": 2, "accuracy": 0.5},
            ">3": {"examples": 2, "accuracy": 1.0},
            "unknown": {"examples": 1, "accuracy": 1.0},
        },
        "accuracy_by_category": {
            "kind": {"a": {"examples": 3, "accuracy": 1.0}, "b": {"examples": 2, "accuracy": 0.5}},
        },
        "blocks": {"blocks": 2, "all_correct": 0.5},
    }
    assert accuracies([ExampleInContext("a", "b", ["c"])], [True]) == {}


def test_the_command_prints_json(tmp_path, data, capsys, checkpoint_with):
    write_examples(tmp_path / "examples", EXAMPLES)
    checkpoint = checkpoint_with("--task", "translation_documents", "--document-length", "16")
    main(["contrast", "--checkpoint", str(checkpoint), "--data", str(data), "--examples", str(tmp_path / "examples")])
    result = json.loads(capsys.readouterr().out)
    assert result["examples"] == 3 and result["mean_context_sentences"] == 1
    assert result["accuracy_by_distance"].keys() == {"0", "1", "unknown"} and result["blocks"]["blocks"] == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "target": "b", "wrong": []}', "there is no wrong variant"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "source_context": ["d"]}', "differ in their number of"),
        ('{"source": "", "target": "b", "wrong": ["c"]}', "the source or a variant is empty"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "distance": "1"}', "Expected `int | null`, got `str`"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "distance": -1}', "Expected `int` >= 0"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "source_contexts": []}', "unknown field `source_contexts`"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "document": 0}', "unknown field `document`"),
    ],
)
def test_examples_of_another_form(tmp_path, line, message):
    (tmp_path / "x").write_text('{"source": "a", "target": "b", "wrong": ["c"]}\n' + line + "\n")
    with pytest.raises(UserError, match=r"x:2: not in the expected format") as refused:
        read_examples_in_context(tmp_path / "x")
    assert message in str(refused.value)


def test_an_example_that_the_model_cannot_read(data, checkpoint_with):
    loaded = load_checkpoint_on_data(checkpoint_with("--task", "translation_documents"), data, cuda=False)
    examples = [EXAMPLES[1], ExampleInContext("w1 " * 2000, "w1", ["w2"])]
    with pytest.raises(UserError, match="example 2 exceeds the model's maximum length"):
        ContextTest(loaded, data, examples).decisions(2)
