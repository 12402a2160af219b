"""The four models of [IN] Table 1, each with one Transformer layer, and their losses and scores.

    x₀ = LayerNorm(tokens + positions)    x₁ = LayerNorm(x₀ + attention(x₀))    y = LayerNorm(x₁ + FFN(x₁))

The layer is post-norm (Vaswani et al. 2017); its input is normalized, too, because the Inhibitor expects variance 1.
Shapes: B batch, T tokens, E = H·D embedding, H heads, N examples.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention import MECHANISMS, AttentionMask
from relumt.papers.inhibitor.table1_settings import TaskSettings

PADDING = 0
"""Reserved index: padding of token sequences, and CTC's blank."""

IMAGE_HEIGHT, IMAGE_WIDTH = 32, 128
"""Size of word images in pixels."""

POSITION_DEVIATION = 0.02
PREDICTION_PADDING, LABEL_PADDING = -1, -2


class SelfAttention(nn.Module):
    """Multi-head self-attention that computes with a mechanism.

    The projections start as in Vaswani et al. (Xavier uniform, biases 0); then the mechanism adjusts those of queries
    and keys (`init_projections`).

    Args:
        embed_dim: E.
        num_heads: H.
        mechanism: name in `relumt.attention.MECHANISMS`.
        **options: of the mechanism.
    """

    def __init__(self, embed_dim: int, num_heads: int, mechanism: str, **options: Any) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)
        self.mechanism = MECHANISMS[mechanism](num_heads, embed_dim // num_heads, **options)
        self.mechanism.init_projections(self.q_proj, self.k_proj)

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        """Let each token of x [B, T, E] attend to those where `key_mask` [B, T] is true, or to all."""
        q, k, v = (self.split_heads(projection(x)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        heads = self.mechanism(q, k, v, AttentionMask(key_mask)).output
        # [B, H, T, D] -> [T, B, E] -> [B, T, E]
        x = self.mechanism.postprocess_heads(heads.permute(2, 0, 1, 3).flatten(2)).transpose(0, 1)
        return self.out_proj(x)

    def split_heads(self, x: Tensor) -> Tensor:
        """Reshape [B, T, E] -> [B, H, T, D]."""
        return x.unflatten(-1, (self.mechanism.num_heads, self.mechanism.head_dim)).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Learned positions, then a Transformer layer with a mechanism of attention."""

    def __init__(self, settings: TaskSettings, mechanism: str) -> None:
        super().__init__()
        options = {"initial_distance": settings.initial_distance} if mechanism == "inhibitor" else {}
        E, hidden = settings.embed_dim, settings.feed_forward_dim
        self.positions = nn.Parameter(POSITION_DEVIATION * torch.randn(settings.length, E))
        self.attention = SelfAttention(E, settings.num_heads, mechanism, **options)
        self.feed_forward = nn.Sequential(nn.Linear(E, hidden), nn.ReLU(), nn.Linear(hidden, E))
        self.input_norm, self.attention_norm, self.output_norm = (nn.LayerNorm(E) for _ in range(3))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """Transform tokens [B, T, E]; `key_mask` [B, T] is False at padding."""
        x = self.input_norm(x + self.positions)
        x = self.attention_norm(x + self.dropout(self.attention(x, key_mask)))
        return self.output_norm(x + self.dropout(self.feed_forward(x)))


class AddingModel(nn.Module):
    """Reads the sum from the last token, so the marked numbers can reach it only through attention."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, settings.embed_dim)
        self.layer = EncoderLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return sums [B] of sequences [B, T, 2]."""
        return self.head(self.layer(self.embedding(sequences))[:, -1]).squeeze(-1)


class DigitModel(nn.Module):
    """Classifies the mean of the tokens, which are the rows of an image."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Linear(settings.length, settings.embed_dim)
        self.layer = EncoderLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, 10] of images [B, T, T] of bytes."""
        return self.head(self.layer(self.embedding(images / 255)).mean(1))


class ReviewModel(nn.Module):
    """Classifies the mean of the words that are not padding."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, settings.embed_dim, padding_idx=PADDING)
        self.layer = EncoderLayer(settings, mechanism)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(settings.embed_dim, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [B, 2] of token indices [B, T]; each review has at least one token."""
        key_mask = tokens != PADDING
        x = self.layer(self.embedding(tokens), key_mask) * key_mask.unsqueeze(-1)
        mean = x.sum(1) / key_mask.sum(1, keepdim=True)
        return self.head(self.dropout(mean))


class WordModel(nn.Module):
    """Two convolutions, the Transformer layer over the columns of their feature map, and logits for CTC."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.convolutions = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))
        self.embedding = nn.Linear(64 * IMAGE_HEIGHT // 4, settings.embed_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.layer = EncoderLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, num_symbols)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, T, symbols] of images [B, 32, 128] of bytes, where T = 32 columns."""
        features = self.convolutions(images.unsqueeze(1) / 255)
        columns = features.permute(0, 3, 1, 2).flatten(2)  # [B, 64, 8, T] -> [B, T, 512]
        return self.head(self.layer(self.dropout(torch.relu(self.embedding(columns)))))


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
