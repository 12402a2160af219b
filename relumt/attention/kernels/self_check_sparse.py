"""What the self-check computes for `sparse_adasplash.project`. Shapes: R rows, S scores."""

from collections.abc import Iterator
from dataclasses import dataclass

import entmax
import torch
from torch import Tensor

from relumt.attention.kernels import sparse_adasplash
from relumt.attention.kernels.self_check_result import Result, compare

ROWS = 16
SEED = 1
OUT_OF_SUPPORT = -4.0
TOLERANCE = 1e-5
DEVIATIONS = (0.05, 0.5, 2.0)
"""Standard deviations of scores: nearly uniform weights, and weights on a few keys."""

EXACT = {2.0: entmax.sparsemax, 1.5: entmax.entmax15}


@dataclass(frozen=True)
class SparseConfig:
    """What decides which code Triton compiles for a call.

    Attributes:
        alpha: 2 for sparsemax, 1.5 for 1.5-entmax.
        size: length of the rows with padding.
    """

    alpha: float
    size: int

    def __str__(self) -> str:
        """Return a name for the log and for `relumt doctor`."""
        return f"{self.alpha:g}-entmax of rows of {self.size} by AdaSplash"


def results(config: SparseConfig, device: torch.device) -> Iterator[Result]:
    """Compute weights and gradients with the kernels and in float64, for rows that are full and rows with padding."""

    def attend(scores: Tensor) -> list[Tensor]:
        return [sparse_adasplash.project(scores.to(device, torch.float32), config.alpha, OUT_OF_SUPPORT)]

    generator = torch.Generator().manual_seed(SEED)
    for deviation in DEVIATIONS:
        for size in (config.size, config.size * 3 // 4):
            scores = torch.randn(ROWS, size, generator=generator).mul(deviation)
            scores = (scores - scores.amax(-1, keepdim=True)).clamp(min=OUT_OF_SUPPORT)
            grad = torch.randn(ROWS, size, generator=generator).double()
            tolerances = dict.fromkeys(("weights", "gradient of the scores"), TOLERANCE)
            yield from compare(
                attend, lambda x: [EXACT[config.alpha](x, dim=-1)], [scores.double()], [grad], tolerances
            )
