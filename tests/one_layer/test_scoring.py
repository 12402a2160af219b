"""Losses and scores against other libraries and hand computation."""

import itertools
import math

import pytest
import torch
from nltk import edit_distance

from relumt.one_layer.scoring import accuracy, ctc_loss, decode_greedily, edit_distances, levenshtein, squared_error


def test_edit_distances_are_those_of_nltk():
    random = torch.Generator().manual_seed(0)
    words = [torch.randint(0, 3, (length,), generator=random).tolist() for length in (0, 1, 2, 4, 5, 7)]
    for first, second in itertools.product(words, words):
        assert levenshtein(first, second) == edit_distance(first, second)


@pytest.mark.parametrize(("best", "word"), [([0, 1, 1, 0, 1, 2], [1, 1, 2]), ([0, 0], []), ([3, 3], [3])])
def test_greedy_decoding_merges_neighbors_before_it_drops_blanks(best, word):
    assert decode_greedily(torch.tensor(best)) == word


def test_mean_edit_distances_with_and_without_padding():
    best = torch.tensor([[1, 0, 2, 2], [3, 0, 0, 0]])
    logits = torch.nn.functional.one_hot(best, 4).float()
    labels = torch.tensor([[1, 2, 0, 0], [1, 3, 3, 0]])
    # "12" for "12" takes 0 edits and "3" for "133" two. With different padding, "12__" for "12--" takes two
    # substitutions and "3___" for "133-" four.
    assert edit_distances(logits, labels) == {"edit distance": 1.0, "edit distance, padded": (2 + 4) / 2}


def test_ctc_is_the_sum_over_all_alignments():
    torch.manual_seed(0)
    logits, label = torch.randn(1, 4, 3), [1, 2]
    probabilities = logits[0].softmax(-1)
    total = sum(
        math.prod(probabilities[t, symbol].item() for t, symbol in enumerate(path))
        for path in itertools.product(range(3), repeat=4)
        if decode_greedily(torch.tensor(path)) == label
    )
    loss = ctc_loss(logits, torch.tensor([[*label, 0]]))
    assert loss.item() == pytest.approx(-math.log(total) / len(label), rel=1e-5)


def test_a_word_that_is_too_long_for_ctc_has_no_loss():
    assert ctc_loss(torch.randn(1, 2, 3), torch.tensor([[1, 1, 1]])).item() == 0


def test_accuracy_and_squared_error_are_in_percent():
    assert accuracy(torch.eye(4), torch.tensor([0, 1, 2, 0])) == {"accuracy": 75.0}
    assert squared_error(torch.tensor([1.0, 1.0]), torch.tensor([1.1, 1.0]))["mse"] == pytest.approx(0.5, rel=1e-5)
