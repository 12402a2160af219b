"""The four models of [IN] Table 1. Each has one Transformer layer. Shapes: B batch, T tokens, E embedding."""

import torch
from torch import Tensor, nn

from relumt.one_layer.encoder import EncoderLayer, SelfAttention
from relumt.one_layer.settings import TaskSettings

PADDING = 0
"""Reserved index: padding of token sequences, and CTC's blank."""

IMAGE_HEIGHT, IMAGE_WIDTH = 32, 128
"""Size of word images in pixels."""

POSITION_DEVIATION = 0.02


class PositionedLayer(nn.Module):
    """Learned positions, then the Transformer layer.

    Args:
        settings: sizes.
        mechanism: name of the attention mechanism.
    """

    def __init__(self, settings: TaskSettings, mechanism: str) -> None:
        super().__init__()
        options = {"initial_distance": settings.initial_distance} if mechanism == "inhibitor" else {}
        E = settings.embed_dim
        self.positions = nn.Parameter(POSITION_DEVIATION * torch.randn(settings.length, E))
        attention = SelfAttention(E, settings.num_heads, mechanism, **options)
        self.layer = EncoderLayer(attention, E, settings.feed_forward_dim, settings.dropout)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """Transform tokens [B, T, E]; `key_mask` [B, T] is False at padding."""
        output: Tensor = self.layer(x + self.positions, key_mask)
        return output


class AddingModel(nn.Module):
    """Reads the sum from the last token, so the marked numbers can reach it only through attention."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, settings.embed_dim)
        self.layer = PositionedLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return sums [B] of sequences [B, T, 2]."""
        output: Tensor = self.head(self.layer(self.embedding(sequences))[:, -1]).squeeze(-1)
        return output


class DigitModel(nn.Module):
    """Classifies the mean of the tokens, which are the rows of an image."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Linear(settings.length, settings.embed_dim)
        self.layer = PositionedLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, 10] of images [B, T, T] of bytes."""
        output: Tensor = self.head(self.layer(self.embedding(images / 255)).mean(1))
        return output


class ReviewModel(nn.Module):
    """Classifies the mean of the words that are not padding."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, settings.embed_dim, padding_idx=PADDING)
        self.layer = PositionedLayer(settings, mechanism)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(settings.embed_dim, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [B, 2] of token indices [B, T]; each review has at least one token."""
        key_mask = tokens != PADDING
        x = self.layer(self.embedding(tokens), key_mask) * key_mask.unsqueeze(-1)
        mean = x.sum(1) / key_mask.sum(1, keepdim=True)
        output: Tensor = self.head(self.dropout(mean))
        return output


class WordModel(nn.Module):
    """Two convolutions, the Transformer layer over the columns of their feature map, and logits for CTC."""

    def __init__(self, settings: TaskSettings, mechanism: str, num_symbols: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.embedding = nn.Linear(64 * IMAGE_HEIGHT // 4, settings.embed_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.layer = PositionedLayer(settings, mechanism)
        self.head = nn.Linear(settings.embed_dim, num_symbols)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, T, symbols] of images [B, 32, 128] of bytes, where T = 32 columns."""
        features = self.convolutions(images.unsqueeze(1) / 255)
        columns = features.permute(0, 3, 1, 2).flatten(2)  # [B, 64, 8, T] -> [B, T, 512]
        output: Tensor = self.head(self.layer(self.dropout(torch.relu(self.embedding(columns)))))
        return output
