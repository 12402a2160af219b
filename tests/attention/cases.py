"""Random attention problems. Shapes: B batch, H heads, T queries, S keys, D head size."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from relumt.attention import MECHANISMS, AttentionMask
from relumt.attention.kernels import dispatch, pointwise_blocked

for_each_mechanism = settings(max_examples=10)
"""For tests that are repeated for every mechanism: together they still see well over a hundred cases."""


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
    def visible(self) -> Tensor:
        """[B, 1, T, S] bool."""
        B, _, T, _ = self.q.shape
        S = self.k.shape[2]
        dense = self.mask.to_dense(T, S)
        return torch.ones(B, 1, T, S, dtype=torch.bool) if dense is None else dense.expand(B, 1, T, S)


@st.composite
def cases(draw, dtype=torch.float64, longest=6, scale=1.0):
    """Problems in which a query may attend to nothing, everything, or what padding and causality leave."""
    B, H, T, S, D = (draw(st.integers(1, most)) for most in (3, 3, longest, longest, 5))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    q = torch.randn(B, H, T, D, generator=seeded, dtype=torch.float64)
    k, v = (torch.randn(B, H, S, D, generator=seeded, dtype=torch.float64) for _ in range(2))
    key_mask = torch.rand(B, S, generator=seeded) > 0.3 if draw(st.booleans()) else None
    attn_mask = torch.rand(T, S, generator=seeded) > 0.3 if draw(st.booleans()) else None
    mask = AttentionMask(key_mask, draw(st.booleans()), attn_mask)
    return Case((q * scale).to(dtype), (k * scale).to(dtype), (v * scale).to(dtype), mask)


@contextmanager
def in_blocks(pairs: int = 60) -> Iterator[list]:
    """Compute pointwise attention in blocks whatever its size; yields a list that grows with each call they serve."""
    calls, attend = [], pointwise_blocked.attend
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pointwise_blocked, "attend", lambda *given: calls.append(1) or attend(*given))
        patched.setattr(pointwise_blocked, "BLOCK_WEIGHTS", pairs)
        patched.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 0)
        patched.setattr(dispatch, "DTYPES", (torch.float64,))
        yield calls


METHODS = "forward attend scores factor bias weights activation project inhibit".split()
"""Methods by which mechanisms differ before their norm."""


def distinct_attentions() -> list[str]:
    """Return the names of mechanisms, one for each way in which attention is computed: others differ in their norm."""
    found: dict[tuple[object, ...], str] = {}
    for name in sorted(MECHANISMS):
        mechanism = type(MECHANISMS[name](1, 4))
        found.setdefault(tuple(getattr(mechanism, method, None) for method in METHODS), name)
    return list(found.values())
