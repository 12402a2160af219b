"""Attention mechanisms in plain PyTorch; nothing here needs fairseq.

from relumt.attention import MECHANISMS, Visible

attention = MECHANISMS["relu"](num_heads=4, head_dim=64)
mixed = attention(q, k, v, Visible(causal=True)).mixed        # q, k, v: [batch, heads, length, 64]
"""

from relumt.attention.base import Attended, Mechanism, Visible, Want
from relumt.attention.precision import at_least_float32, saturated
from relumt.attention.registry import MECHANISMS
from relumt.attention.statistics import NULL_TOTAL, RowStatistics

__all__ = [
    "MECHANISMS",
    "NULL_TOTAL",
    "Attended",
    "Mechanism",
    "RowStatistics",
    "Visible",
    "Want",
    "at_least_float32",
    "saturated",
]
