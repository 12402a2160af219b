"""Attention mechanisms in plain PyTorch; nothing here needs fairseq.

A mechanism computes the output of every head, of q, k and v of shape [batch, heads, length, 64]:

    from relumt.attention import MECHANISMS, AttentionMask

    attention = MECHANISMS["relu"](num_heads=4, head_dim=64)
    heads = attention(q, k, v, AttentionMask(is_causal=True)).output
"""

from relumt.attention.gate import GATES, OutputGate
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.multihead import MultiheadAttention, attend
from relumt.attention.precision import at_least_float32, cast_saturating
from relumt.attention.qk_norm import QK_NORMS, QKNorm
from relumt.attention.registry import MECHANISMS
from relumt.attention.row_stats import NULL_WEIGHT_SUM, RowStats

__all__ = [
    "GATES",
    "MECHANISMS",
    "NULL_WEIGHT_SUM",
    "QK_NORMS",
    "AttentionMask",
    "AttentionOutput",
    "Mechanism",
    "MultiheadAttention",
    "Need",
    "OutputGate",
    "QKNorm",
    "RowStats",
    "at_least_float32",
    "attend",
    "cast_saturating",
]
