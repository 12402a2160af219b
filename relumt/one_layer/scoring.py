"""Losses and scores of the four tasks."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.one_layer.models import PADDING

PREDICTION_PADDING, LABEL_PADDING = -1, -2


def squared_error(predicted: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the mean squared error of sums [N] in percent: 100 times the error, as [IN] prints it."""
    return {"mse": 100 * F.mse_loss(predicted, targets).item()}


def accuracy(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the share in percent of examples whose largest logit [N, classes] is that of the target [N]."""
    return {"accuracy": 100 * (logits.argmax(-1) == targets).double().mean().item()}


def ctc_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return CTC's loss per character, averaged over words; logits [B, T, symbols], targets [B, L] padded with 0."""
    B, T, _ = logits.shape
    lengths = (targets != PADDING).sum(1)
    log_probs = logits.log_softmax(-1).transpose(0, 1)  # [B, T, symbols] -> [T, B, symbols]
    # A word that needs more than T columns has an infinite loss, and teaches nothing.
    return F.ctc_loss(log_probs, targets, torch.full((B,), T), lengths, blank=PADDING, zero_infinity=True)


def edit_distances(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Return mean edit distances of the words that CTC decodes greedily; logits [N, T, symbols], targets [N, L].

    "edit distance" counts characters. "edit distance, padded" is what the Keras example on IAM words prints: both words
    are padded to L with symbols that differ from each other, so each position after the longer word counts as an error.
    """
    words = [decode_greedily(best) for best in logits.argmax(-1)]
    labels = [label[label != PADDING].tolist() for label in targets]
    L = targets.shape[1]
    pairs = list(zip(words, labels, strict=True))
    padded = [(pad(word, L, PREDICTION_PADDING), pad(label, L, LABEL_PADDING)) for word, label in pairs]
    return {
        "edit distance": sum(levenshtein(*pair) for pair in pairs) / len(pairs),
        "edit distance, padded": sum(levenshtein(*pair) for pair in padded) / len(pairs),
    }


def decode_greedily(symbols: Tensor) -> list[int]:
    """Merge equal neighbors of the best symbols [T], then drop the blanks."""
    return [symbol for symbol in torch.unique_consecutive(symbols).tolist() if symbol != PADDING]


def pad(symbols: Sequence[int], length: int, padding: int) -> list[int]:
    """Cut or pad a word to exactly `length` symbols."""
    return [*symbols[:length], *[padding] * (length - len(symbols))]


def levenshtein(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the least number of insertions, deletions and substitutions that turn one sequence into the other."""
    distances = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, distances[0] = distances[0], i
        for j, b in enumerate(second, 1):
            diagonal, distances[j] = distances[j], min(distances[j] + 1, distances[j - 1] + 1, diagonal + (a != b))
    return distances[-1]
