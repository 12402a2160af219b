"""How much the heads of an attention module differ, [RL] Fig. 5 and Table 6. Shapes: R rows, H heads, S keys.

The generalized Jensen-Shannon divergence of the heads' rows, in nats,

    JS(p_1 … p_H) = H(1/H Σ_h p_h) − 1/H Σ_h H(p_h),

is 0 if all heads attend alike and log H if no two heads share a key. Weights α that do not sum to 1 become
distributions in one of two ways: p = α/Σα, or [RL]'s softmax of α^τ over the visible keys. The latter depends on the
scale of the weights: it is nearly uniform for weights as small as ReLUFormer's, about 1/n, so all heads seem alike. In
both, a null row becomes all weight on an extra dummy key: null rows are alike, and unlike any row with weights.
"""

import torch
from torch import Tensor

from relumt.attention.metrics.attention_metrics import is_null_row, normalize

TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
"""The values of τ in [RL] Table 6."""


def jensen_shannon_divergence(p: Tensor) -> Tensor:
    """Return the divergence of the heads in each row, [R].

    Args:
        p: [R, H, S], a distribution over S in each row and head.
    """
    return _entropy(p.mean(1)) - _entropy(p).mean(1)


def normalize_with_dummy(rows: Tensor) -> Tensor:
    """Return α/Σα over the keys and the dummy key, [R, H, S + 1].

    Args:
        rows: non-negative weights, [R, H, S].
    """
    return _add_dummy(normalize(rows), is_null_row(rows))


def softmax_with_dummy(rows: Tensor, visible: Tensor, tau: float) -> Tensor:
    """Return the softmax of α^τ over the visible keys, and the dummy key, [R, H, S + 1].

    Args:
        rows: non-negative weights, [R, H, S].
        visible: [R, S] bool.
        tau: exponent of the weights; 0^τ is 0.
    """
    return _add_dummy(rows.pow(tau).masked_fill(~visible[:, None], -torch.inf).softmax(-1), is_null_row(rows))


def _add_dummy(p: Tensor, is_null: Tensor) -> Tensor:
    """Append the dummy key to p [R, H, S]; it gets all the weight of null rows [R, H], whatever p is there."""
    is_null = is_null[..., None]
    return torch.cat([p.masked_fill(is_null, 0.0), is_null.to(p)], dim=-1)


def _entropy(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p).sum(-1)
