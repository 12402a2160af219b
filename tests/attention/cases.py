"""Random attention problems. Shapes: B batch, H heads, T queries, S keys, D head size."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from relumt.attention import Visible


@dataclass(frozen=True)
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    visible: Visible

    @property
    def H(self) -> int:
        return self.q.shape[1]

    @property
    def D(self) -> int:
        return self.q.shape[3]

    @property
    def seen(self) -> Tensor:
        """[B, 1, T, S] bool."""
        B, _, T, _ = self.q.shape
        S = self.k.shape[2]
        dense = self.visible.dense(T, S)
        return torch.ones(B, 1, T, S, dtype=torch.bool) if dense is None else dense.expand(B, 1, T, S)


@st.composite
def cases(draw, dtype=torch.float64, longest=6, scale=1.0):
    """Problems in which rows may see nothing, everything, or what padding and causality leave them."""
    B, H, T, S, D = (draw(st.integers(1, most)) for most in (3, 3, longest, longest, 5))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    q = torch.randn(B, H, T, D, generator=seeded, dtype=torch.float64)
    k, v = (torch.randn(B, H, S, D, generator=seeded, dtype=torch.float64) for _ in range(2))
    keys = torch.rand(B, S, generator=seeded) > 0.3 if draw(st.booleans()) else None
    pairs = torch.rand(T, S, generator=seeded) > 0.3 if draw(st.booleans()) else None
    visible = Visible(keys, draw(st.booleans()), pairs)
    return Case((q * scale).to(dtype), (k * scale).to(dtype), (v * scale).to(dtype), visible)
