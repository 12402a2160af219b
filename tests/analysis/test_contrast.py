"""Contrastive accuracy: against log-probabilities computed sentence by sentence, and by hand."""

import json

import pytest
import torch

from relumt.analysis.contrast import (
    accuracies,
    after_own_context,
    context_candidates,
    decide,
    majority_accuracy,
    score_examples,
)
from relumt.cli import main
from relumt.corpora.contrastive import ExampleInContext, read_examples, write_examples
from relumt.errors import AttemptFailedError, UserError
from relumt.runs.inference.loaded_model import load_model
from relumt.runs.inference.search import SearchSettings
from tests.plugin.model.build import dictionary, write_data_bin

LENGTHS = [(7, 5), (3, 8), (4, 3), (6, 6), (4, 4), (9, 3)]
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
    folder = write_data_bin(tmp_path / "data-bin", LENGTHS)
    return write_data_bin(folder, LENGTHS, "train")


def tokens(words):
    return [dictionary().index(word) for word in words.split()]


def load(checkpoint_with, data, *flags):
    return load_model(checkpoint_with("--task", "translation_documents", *flags), data, cpu=True)[0]


@torch.no_grad()
def log_probability(loaded, source, before, variant):
    """The log-probability of the words of a variant after the tokens `before`, given the source tokens."""
    source, prefix = torch.tensor([[*source, 2]]), torch.tensor([[2, *before, *tokens(variant)]])
    log_probs = loaded.model(source, torch.tensor([source.shape[1]]), prefix)[0].log_softmax(-1)[0]
    chosen = log_probs[torch.arange(prefix.shape[1] - 1), prefix[0, 1:]]
    return chosen[len(before) :].sum().item()


def flat(groups):
    return [score for group in groups for score in group]


@pytest.mark.parametrize(
    ("limit", "separator", "num_context"),
    [(0, "", [0, 0, 0]), (7, "", [2, 0, 0]), (8, SEPARATOR, [1, 0, 0]), (30, SEPARATOR, [2, 0, 1])],
)
def test_the_context_is_what_fits_into_a_chunk(data, checkpoint_with, limit, separator, num_context):
    """With both sentences before it, the first example has 7 tokens per side, and 9 with separators."""
    loaded = load(checkpoint_with, data)
    loaded.task.cfg.document_length, loaded.task.cfg.document_separator = limit, separator
    expected = []
    for example, count in zip(EXAMPLES, num_context, strict=True):
        first = len(example.source_context) - count
        source = [token for words in example.source_context[first:] for token in tokens(f"{words} {separator}")]
        before = [token for words in example.target_context[first:] for token in tokens(f"{words} {separator}")]
        source += tokens(example.source)
        expected.append([log_probability(loaded, source, before, variant) for variant in example.variants])
    candidates = list(context_candidates(loaded, data, EXAMPLES))
    scores = score_examples(loaded, candidates, batch_size=3)
    assert [variants[0].num_context for variants in candidates] == num_context
    assert flat(scores) == pytest.approx(flat(expected), rel=1e-4)
    assert decide(loaded, candidates, 2) == [x[0] > max(x[1:]) for x in expected]


OWN = {"short": "w6 w7", "too long": "w6 " * 1000 + "w5 " * 1000}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("separator", ["", SEPARATOR])
def test_the_model_may_read_its_own_translation_of_the_context(data, checkpoint_with, monkeypatch, separator, own):
    loaded = load(checkpoint_with, data)
    loaded.task.cfg.document_length, loaded.task.cfg.document_separator = 30, separator
    sources = []

    def search(loaded, contexts, search, batch_size):
        sources.extend(contexts)
        return [[{"tokens": torch.tensor([*tokens(OWN[own]), 2])}] if len(x) else [] for x in contexts]

    monkeypatch.setattr("relumt.analysis.contrast.search_hypotheses", search)
    candidates = list(context_candidates(loaded, data, EXAMPLES))
    found = after_own_context(loaded, candidates, SearchSettings(), 8)
    read = [f"w1 w1 w1 {separator} w2", "", "w1 " * 9]
    assert [x.tolist() for x in sources] == [[*tokens(words), 2] if words else [] for words in read]
    expected = []
    for example, has_context in zip(EXAMPLES, (True, False, True), strict=True):
        expected.append([])
        for variant in example.variants:
            room = loaded.max_positions[1] - len(tokens(f"{variant} {separator}")) - 1
            before = [*tokens(OWN[own])[-room:], *tokens(separator)] if has_context else []
            source = tokens(f" {separator} ".join([*example.source_context, example.source]))
            expected[-1].append(log_probability(loaded, source, before, variant))
    assert flat(score_examples(loaded, found, 3)) == pytest.approx(flat(expected), rel=1e-4)
    assert [variants[0].num_context for variants in found] == [2, 0, 1]


def test_accuracies_by_hand():
    examples = [
        ExampleInContext("a", "b", ["c"], distance=distance, categories={"kind": kind}, block=block)
        for distance, kind, block in ((0, "a", "x"), (0, "b", "x"), (4, "a", "y"), (9, "a", "y"), (None, "b", ""))
    ]
    share = lambda count, accuracy: {"examples": count, "accuracy": accuracy}  # noqa: E731
    assert accuracies(examples, [True, False, True, True, True]) == {
        "accuracy_by_distance": {"0": share(2, 0.5), ">3": share(2, 1.0), "unknown": share(1, 1.0)},
        "accuracy_by_category": {"kind": {"a": share(3, 1.0), "b": share(2, 0.5)}},
        "blocks": {"blocks": 2, "all_correct": 0.5},
    }
    assert accuracies([ExampleInContext("a", "b", ["c"])], [True]) == {}


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        (["er lacht|sie lacht", "sie lacht|er lacht", "sie lacht|er lacht"], 2 / 3),
        (["er lacht|sie lacht", *["sie lacht|er lacht"] * 2, *["ich sehe ihn|ich sehe sie"] * 2], 4 / 5),
        # alone with its choice: by chance
        (["er lacht|sie lacht", *["sie lacht|er lacht"] * 2, "ich sehe ihn|ich sehe sie"], 2.5 / 4),
        (["the cat|the dog", "a red car|a blue car"], 1 / 2),
        (["er lacht laut|er lacht", "er lacht|er lacht laut"], 1 / 2),
    ],
)
def test_majority_accuracy_by_hand(examples, expected):
    variants = [example.split("|") for example in examples]
    found = majority_accuracy(ExampleInContext("x", reference, wrong) for reference, *wrong in variants)
    assert found == pytest.approx(expected)


def contrast(checkpoint, data, examples, *flags):
    main(["contrast", "--checkpoint", str(checkpoint), "--data", str(data), "--examples", str(examples), *flags])


def test_the_command_prints_json(tmp_path, data, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--task", "translation_documents", "--document-length", "16")
    write_examples(tmp_path / "examples", EXAMPLES)
    contrast(checkpoint, data, tmp_path / "examples")
    result = json.loads(capsys.readouterr().out)
    assert (result["examples"], result["document_length"]) == (3, 16)
    assert 0 <= result["accuracy"] <= 1 and result["majority_accuracy"] > 0
    assert result["mean_context_sentences"] == 1 and result["blocks"]["blocks"] == 2
    assert result["accuracy_by_distance"].keys() == {"0", "1", "unknown"}
    contrast(checkpoint, data, tmp_path / "examples", "--own-context")
    assert json.loads(capsys.readouterr().out)["target_context"] == "own translation"


def test_an_empty_file_ends_in_one_line(tmp_path, data, capsys, checkpoint_with):
    (tmp_path / "x").touch()
    with pytest.raises(SystemExit, match="2"):
        contrast(checkpoint_with(), data, tmp_path / "x")
    assert "x: expected contrastive examples, found an empty file" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "target": "b", "wrong": []}', "there is no wrong variant"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "source_context": ["d"]}', "differ in their number of"),
        ('{"source": "a", "target": "b", "wrong": ["c"], "source_contexts": []}', "unknown field `source_contexts`"),
    ],
)
def test_examples_of_another_form(tmp_path, line, message):
    (tmp_path / "x").write_text('{"source": "a", "target": "b", "wrong": ["c"]}\n' + line + "\n")
    with pytest.raises(UserError, match=r"x:2: not in the expected format") as refused:
        read_examples(tmp_path / "x", ExampleInContext)
    assert message in str(refused.value)


def test_an_example_that_the_model_cannot_read_and_probabilities_that_are_not_numbers(
    data, checkpoint_with, monkeypatch
):
    loaded = load(checkpoint_with, data)
    examples = [EXAMPLES[1], ExampleInContext("w1 " * 2000, "w1", ["w2"])]
    with pytest.raises(UserError, match="example 2 exceeds the model's maximum length"):
        decide(loaded, list(context_candidates(loaded, data, examples)), 2)
    nan = lambda _, sample: torch.full(sample["target"].shape, torch.nan)  # noqa: E731
    monkeypatch.setattr("relumt.runs.inference.loaded_model.LoadedModel.target_log_probs", nan)
    with pytest.raises(AttemptFailedError, match="probabilities are not numbers"):
        decide(loaded, list(context_candidates(loaded, data, EXAMPLES)), 2)
