"""How differently the heads of an attention look, [RL] Fig. 5 and Table 6. Shapes: R query rows, H heads, S keys.

The generalised Jensen–Shannon divergence of the heads' rows, in nats,

    JS(p_1 … p_H) = H(1/H Σ_h p_h) − 1/H Σ_h H(p_h),

is 0 where all heads look alike and log H where no two share a key. Rows of mechanisms that do not sum to 1 are made
distributions by a softmax of α^τ over the visible keys; a null row is all on a dummy key that no other row sees.
"""

import torch
from torch import Tensor

from relumt.metrics.attention_metrics import null

TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
"""The τ of [RL] Table 6."""


def divergence(p: Tensor) -> Tensor:
    """JS of the heads of each row, [R]; p is [R, H, S], each row a distribution."""
    return _entropy(p.mean(1)) - _entropy(p).mean(1)


def renormalised(weights: Tensor, mask: Tensor, tau: float) -> Tensor:
    """Rows of non-negative weights as distributions over their keys and the dummy, [R, H, S + 1].

    Args:
        weights: [R, H, S].
        visible: [R, S] bool.
        tau: exponent of the weights; 0^τ is 0.
    """
    p = weights.pow(tau).masked_fill(~mask[:, None], -torch.inf).softmax(-1)
    of_none = null(weights)[..., None]
    return torch.cat([p.masked_fill(of_none, 0.0), of_none.to(p.dtype)], dim=-1)


def _entropy(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p).sum(-1)
