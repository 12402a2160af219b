"""Random attention problems with sizes of 0 and 1, empty rows, extreme numbers and padding that is not finite.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention import MECHANISMS, AttentionMask
from tests.attention import oracle

SIZES = (0, 1, 1, 2, 2, 3, 3, 5, 8, 17, 33)
MAX_TERMS = 6000
"""Largest B·H·T·S·D, which limits the time of the oracle."""

SCALES = {
    "ordinary": (1.0, 1.0, 1.0),
    "large scores": (30.0, 30.0, 1.0),
    "huge scores": (1e17, 1e17, 1.0),
    "huge queries": (1e30, 1e-30, 1.0),
    "huge values": (1.0, 1.0, 1e30),
    "tiny": (1e-30, 1e-30, 1e-30),
    "denormal": (1e-40, 1.0, 1e-40),
    "zero": (0.0, 0.0, 0.0),
}
"""Kind of a case → what q, k and v are multiplied by."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class NumericCase:
    """A problem, and what a correct solution is.

    Attributes:
        name: of the mechanism.
        kind: key of SCALES.
        q: [B, H, T, D].
        k, v: [B, H, S, D], possibly infinite or NaN at padding.
        visible: [B, 1, T, S] bool.
    """

    name: str
    kind: str
    q: Tensor
    k: Tensor
    v: Tensor
    mask: AttentionMask
    visible: Tensor

    def __str__(self) -> str:
        keys, pairs = self.mask.key_mask, self.mask.attn_mask
        return (
            f"{self.name}, {self.kind}, {self.q.dtype}, q {list(self.q.shape)}, {self.k.shape[2]} keys, "
            f"key_mask {None if keys is None else keys.int().tolist()}, causal {self.mask.is_causal}, "
            f"attn_mask {None if pairs is None else pairs.int().tolist()}"
        )

    def exact(self, *qkv: Tensor) -> Tensor:
        """Return the oracle's output for other q, k and v, [B, H, T, D] float64."""
        q, k, v = qkv or (self.q, self.k, self.v)
        return oracle.attend(oracle.ORACLES[self.name].attend, q.double(), k.double(), v.double(), self.visible)[1]

    def tolerance(self) -> float:
        """Return how far an output in this dtype may be from the oracle's.

        With unit roundoff u of the computation (float32 for half precision), a score is wrong by at most (D + 2)·u
        times √D·max|q|·max|k|. No weight changes faster than its score, but that of relu2 by twice the score. A sum of
        S products adds S·u, and a fused kernel rounds the output to the dtype of q. The Inhibitor has distances instead
        of scores.
        """
        S, D = self.k.shape[2:]
        roundoff = torch.finfo(torch.float64 if self.q.dtype == torch.float64 else torch.float32).eps
        q, k, v = (largest(x) for x in (self.q, self.k, self.v))
        score = D**0.5 * q * k + 1
        magnitude = S * score * v * (2 * score if self.name == "relu2" else 1)
        if not MECHANISMS[self.name](1, 1).has_weights:
            magnitude = S * (D**0.5 * (q + k) + 1 + v)
        bound = 8 * roundoff * (S + D) * magnitude + 1e3 * torch.finfo(torch.float32).tiny * (1 + k + v)
        return bound + (torch.finfo(self.q.dtype).eps * magnitude if self.q.dtype == torch.bfloat16 else 0.0)


def largest(x: Tensor) -> float:
    """Return the largest finite absolute value, 0 if there is none."""
    finite = x[x.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def draw_case(index: int) -> NumericCase:
    """Return case number `index`; the mechanisms take turns."""
    rng = random.Random(index)
    names = sorted(MECHANISMS)
    while True:
        B, H, T, S, D = (
            rng.choice((0, 1, 1, 2, 3)),
            rng.choice((1, 1, 2, 3)),
            *rng.choices(SIZES, k=2),
            rng.choice(SIZES[1:]),
        )
        if B * H * T * S * D <= MAX_TERMS:
            break
    seeded = torch.Generator().manual_seed(index)
    kind, dtype = rng.choice(["ordinary", *SCALES]), rng.choice(DTYPES)
    q, k, v = (
        (torch.randn(B, H, length, D, generator=seeded, dtype=torch.float64) * scale).to(dtype)
        for length, scale in zip((T, S, S), SCALES[kind], strict=True)
    )
    key_mask = draw_mask(rng, seeded, B, S)
    mask = AttentionMask(key_mask, rng.random() < 0.4, draw_mask(rng, seeded, T, S) if rng.random() < 0.4 else None)
    if key_mask is not None and rng.random() < 0.7:  # garbage in padding
        for x in (k, v):
            garbage = torch.tensor(rng.choices((torch.inf, -torch.inf, torch.nan), k=S * D), dtype=dtype).view(
                1, 1, S, D
            )
            x.copy_(x.where(key_mask[:, None, :, None], garbage))
    dense = mask.to_dense(T, S)
    visible = torch.ones(B, 1, T, S, dtype=torch.bool) if dense is None else dense.expand(B, 1, T, S)
    return NumericCase(names[index % len(names)], kind, q, k, v, mask, visible)


def draw_mask(rng: random.Random, seeded: torch.Generator, rows: int, columns: int) -> Tensor | None:
    """Return no mask or one [rows, columns] bool: random, with empty rows, or empty."""
    kind = rng.choice(("none", "random", "random", "empty rows", "empty", "prefix"))
    if kind == "none":
        return None
    mask = torch.rand(rows, columns, generator=seeded) > 0.4
    if kind == "empty rows":
        mask[::2] = False
    if kind == "prefix":
        mask = torch.arange(columns)[None] < torch.randint(0, columns + 1, (rows, 1), generator=seeded)
    return mask & (kind != "empty")
