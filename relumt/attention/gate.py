"""Gates on the output of any mechanism (Qiu et al. 2025, arXiv:2505.06708). Shapes: T B H D, E = H·D.

    elementwise    y' = y ⊙ σ(xW),    W [E, E]
    headwise       y'_h = y_h·σ(xW)_h,    W [E, H]: one gate per head

x is the input of the query projection and y the concatenated heads, after a norm if the mechanism has one. A gate lets
a query ignore what its heads found, as null rows do, whatever the mechanism. `--attention-gate` sets it, in Python
`MultiheadAttention(…, gate="headwise")`.
"""

import torch
from torch import Tensor, nn

GATES = ("elementwise", "headwise")


class OutputGate(nn.Module):
    """y ⊙ σ(xW).

    Args:
        kind: one of GATES.
        embed_dim: E.
        num_heads: H.
    """

    def __init__(self, kind: str, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if kind not in GATES:
            raise ValueError(f"a gate must be one of {', '.join(GATES)}, not {kind!r}")
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, not {embed_dim} and {num_heads}")
        self.num_heads = num_heads
        self.proj = nn.Linear(embed_dim, embed_dim if kind == "elementwise" else num_heads, bias=False)

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        """Gate the concatenated heads [T, B, E] with the queries' input x [T, B, E] → [T, B, E]."""
        # [T, B, E] -> [T, B, H, D]
        gated: Tensor = heads.unflatten(-1, (self.num_heads, -1)) * self.gates(x)
        return gated.flatten(2)

    def gates(self, x: Tensor) -> Tensor:
        """Return σ(xW) for the queries' input x [T, B, E]: [T, B, H, D], or [T, B, H, 1] if each head has one gate."""
        gates: Tensor = torch.sigmoid(self.proj(x)).unflatten(-1, (self.num_heads, -1))
        return gates
