"""The four models of [IN] Table 1, each with one Transformer layer, and their losses and scores.

    x₀ = LayerNorm(tokens + positions)    x₁ = LayerNorm(x₀ + attention(x₀))    y = LayerNorm(x₁ + FFN(x₁))

The layer is post-norm (Vaswani et al. 2017); its input is normalized, too, because the Inhibitor expects variance 1.
Shapes: B batch, T tokens, E = H·D embedding, H heads, N examples.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention import MultiheadAttention
from relumt.papers.inhibitor.table1_data import IMAGE_HEIGHT, PADDING, Settings

POSITION_DEVIATION = 0.02


class EncoderLayer(nn.Module):
    """Learned positions, then a Transformer layer with a mechanism of attention."""

    def __init__(self, settings: Settings, mechanism: str) -> None:
        super().__init__()
        options: dict[str, Any] = {"initial_distance": settings.initial_distance} if mechanism == "inhibitor" else {}
        E, hidden = settings.embed_dim, settings.feed_forward_dim
        self.positions = nn.Parameter(POSITION_DEVIATION * torch.randn(settings.length, E))
        self.attention = MultiheadAttention(E, settings.num_heads, batch_first=True, mechanism=mechanism, **options)
        self.feed_forward = nn.Sequential(nn.Linear(E, hidden), nn.ReLU(), nn.Linear(hidden, E))
        self.input_norm, self.attention_norm, self.output_norm = (nn.LayerNorm(E) for _ in range(3))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """Transform tokens [B, T, E]; `key_mask` [B, T] is False at padding."""
        x = self.input_norm(x + self.positions)
        padding = None if key_mask is None else ~key_mask
        attended, _ = self.attention(x, x, x, padding, need_weights=False)
        x = self.attention_norm(x + self.dropout(attended))
        return self.output_norm(x + self.dropout(self.feed_forward(x)))


class OneLayerModel(nn.Module):
    """An embedding, the Transformer layer, and a linear head."""

    def __init__(self, embedding: nn.Module, settings: Settings, mechanism: str, num_outputs: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.layer = EncoderLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, num_outputs)
        self.dropout = nn.Dropout(settings.dropout)


class AddingModel(OneLayerModel):
    """Reads the sum from the last token, so the marked numbers can reach it only through attention."""

    def __init__(self, settings: Settings, mechanism: str, num_symbols: int) -> None:
        super().__init__(nn.Linear(2, settings.embed_dim), settings, mechanism, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return sums [B] of sequences [B, T, 2]."""
        return self.head(self.layer(self.embedding(sequences))[:, -1]).squeeze(-1)


class DigitModel(OneLayerModel):
    """Classifies the mean of the tokens, which are the rows of an image."""

    def __init__(self, settings: Settings, mechanism: str, num_symbols: int) -> None:
        super().__init__(nn.Linear(settings.length, settings.embed_dim), settings, mechanism, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, 10] of images [B, T, T] of bytes."""
        return self.head(self.layer(self.embedding(images / 255)).mean(1))


class ReviewModel(OneLayerModel):
    """Classifies the mean of the words that are not padding."""

    def __init__(self, settings: Settings, mechanism: str, num_symbols: int) -> None:
        embedding = nn.Embedding(num_symbols, settings.embed_dim, padding_idx=PADDING)
        super().__init__(embedding, settings, mechanism, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [B, 2] of token indices [B, T]; each review has at least one token."""
        key_mask = tokens != PADDING
        x = self.layer(self.embedding(tokens), key_mask) * key_mask.unsqueeze(-1)
        return self.head(self.dropout(x.sum(1) / key_mask.sum(1, keepdim=True)))


class WordModel(OneLayerModel):
    """Two convolutions, the Transformer layer over the columns of their feature map, and logits for CTC."""

    def __init__(self, settings: Settings, mechanism: str, num_symbols: int) -> None:
        first, second = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        columns = nn.Linear(64 * IMAGE_HEIGHT // 4, settings.embed_dim)
        convolutions = [first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2)]
        embedding = nn.Sequential(*convolutions, Columns(), columns, nn.ReLU(), nn.Dropout(settings.dropout))
        super().__init__(embedding, settings, mechanism, num_symbols)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, T, symbols] of images [B, 32, 128] of bytes, where T = 32 columns."""
        return self.head(self.layer(self.embedding(images.unsqueeze(1) / 255)))


class Columns(nn.Module):
    """Makes a token of each column of a feature map."""

    def forward(self, features: Tensor) -> Tensor:
        """Reshape [B, C, H, T] -> [B, T, C·H]."""
        return features.permute(0, 3, 1, 2).flatten(2)


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
    L = targets.shape[1]
    plain, padded = [], []
    for best, target in zip(logits.argmax(-1), targets, strict=True):
        word, label = decode_greedily(best), target[target != PADDING].tolist()
        plain.append(levenshtein(word, label))
        padded.append(levenshtein((word + [-1] * L)[:L], (label + [-2] * L)[:L]))
    return {"edit distance": sum(plain) / len(plain), "edit distance, padded": sum(padded) / len(padded)}


def decode_greedily(symbols: Tensor) -> list[int]:
    """Merge equal neighbors of the best symbols [T], then drop the blanks."""
    return [symbol for symbol in torch.unique_consecutive(symbols).tolist() if symbol != PADDING]


def levenshtein(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the least number of insertions, deletions and substitutions that turn one sequence into the other."""
    distances = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, distances[0] = distances[0], i
        for j, b in enumerate(second, 1):
            diagonal, distances[j] = distances[j], min(distances[j] + 1, distances[j - 1] + 1, diagonal + (a != b))
    return distances[-1]


class Task(NamedTuple):
    """How a task is learned.

    Attributes:
        model: takes the settings, the name of a mechanism and the number of symbols.
        loss: function of outputs and targets, to train with.
        score: function of outputs and targets, metric -> value; the first metric decides.
        sign: 1 if a higher score is better, -1 if a lower one is.
    """

    model: Callable[[Settings, str, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], dict[str, float]]
    sign: int


TASKS = {
    "adding": Task(AddingModel, F.mse_loss, squared_error, -1),
    "mnist": Task(DigitModel, F.cross_entropy, accuracy, 1),
    "imdb": Task(ReviewModel, F.cross_entropy, accuracy, 1),
    "iam": Task(WordModel, ctc_loss, edit_distances, -1),
}
