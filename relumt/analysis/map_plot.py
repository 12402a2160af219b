"""maps.png: the cross-attention of several checkpoints on one sentence pair, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from relumt.analysis.attention_maps import SentenceMaps


def plot_maps(maps: Mapping[str, Sequence[SentenceMaps]], out: Path, number: int | None = None) -> None:
    """Write maps.png."""
