"""How the Triton kernels of pointwise weights are cut: a block of queries, a block of keys, warps, stages.

One choice for each kernel and kind of call; a block's queries and keys are multiples of 16, as dropout's numbers want.
`python benchmarks/tune_launch_configs.py` times the candidates on the GPU at hand. What stands here was chosen without one, by
counting instructions (docs/kernels.md).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SHORT = 64
"""A sentence's length up to which blocks are small."""


@dataclass(frozen=True)
class Blocks:
    """Queries and keys of a block, the warps that share it, and how many blocks are on their way from memory."""

    queries: int
    keys: int
    warps: int
    stages: int

    def constants(self) -> dict[str, int]:
        """As kernels take them."""
        return {
            "BLOCK_T": self.queries, "BLOCK_S": self.keys, "num_warps": self.warps, "num_stages": self.stages
        }  # fmt: skip


CHOSEN = {
    "forward": {
        "short": Blocks(64, 64, 4, 2),
        "long": Blocks(128, 128, 8, 3),
        "dropout": Blocks(128, 64, 8, 2),
        "wide": Blocks(64, 32, 4, 2),
        "exact": Blocks(32, 32, 4, 1),
    },
    "of_queries": {
        "short": Blocks(64, 64, 4, 2),
        "long": Blocks(128, 64, 8, 2),
        "dropout": Blocks(128, 64, 8, 2),
        "wide": Blocks(64, 32, 4, 2),
        "exact": Blocks(32, 32, 4, 1),
    },
    "of_keys": {
        "short": Blocks(64, 64, 4, 2),
        "long": Blocks(64, 128, 8, 2),
        "dropout": Blocks(32, 128, 8, 2),
        "wide": Blocks(16, 64, 4, 2),
        "exact": Blocks(32, 32, 4, 1),
    },
}
"""By kernel (values; q's gradient; k's and v's) and kind of call. In a product, wgmma wants 64 rows of each four warps:
queries where a program holds queries, keys where it holds keys."""


def kind(held: Tensor, dropout: bool) -> str:
    """Which of a kernel's choices serves a call whose programs hold rows of this, [B, H, T, D]: of q, or of k."""
    if held.dtype == torch.float32:
        return "exact"
    if held.shape[3] > 64:
        return "wide"
    if held.shape[2] <= SHORT:
        return "short"
    return "dropout" if dropout else "long"


def blocks(kernel: str, held: Tensor, dropout: bool) -> dict[str, int]:
    """The constants of a kernel that say how a call is cut."""
    return CHOSEN[kernel][kind(held, dropout)].constants()
