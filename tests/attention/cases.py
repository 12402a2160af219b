"""Random attention problems, and having them computed in blocks. B batch, H heads, T queries, S keys, D head size."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from relumt.attention import AttentionMask
from relumt.attention.kernels import dispatch, pointwise_blocked


@dataclass(frozen=True)
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: AttentionMask

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
        dense = self.mask.to_dense(T, S)
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
    mask = AttentionMask(keys, draw(st.booleans()), pairs)
    return Case((q * scale).to(dtype), (k * scale).to(dtype), (v * scale).to(dtype), mask)


@contextmanager
def in_blocks(pairs: int = 60) -> Iterator[list]:
    """Always blocks; gives a list of the calls that they serve."""
    calls, attend = [], pointwise_blocked.attend
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pointwise_blocked, "attend", lambda *given: calls.append(1) or attend(*given))
        patched.setattr(pointwise_blocked, "PAIRS", pairs)
        patched.setattr(dispatch, "LARGE_ON_CPU", 0)
        patched.setattr(dispatch, "TYPES", (torch.float64,))
        yield calls
