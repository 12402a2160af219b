"""Time the pointwise kernels with different blocks on the GPU at hand, and remember the fastest ones."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from relumt.attention.kernels import pointwise_triton, tuned_blocks
from relumt.attention.kernels.fitting_blocks import FittingBlocks, fitting_blocks
from relumt.attention.kernels.launch_config import CallKind, KernelName, LaunchConfig
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.kernel_timing import kernel_seconds

TILE_SIZES, WARPS, STAGES = (32, 64, 128), (4, 8), (1, 2, 3)
CANDIDATES = [
    LaunchConfig(*choice)
    for choice in itertools.product(TILE_SIZES, TILE_SIZES, WARPS, STAGES)
    if max(choice[:2]) > min(TILE_SIZES)
]
MIN_GAIN = 0.03
"""The current blocks stay unless others are faster by this share, because timings vary."""


@dataclass(frozen=True)
class _TypicalCall:
    """What is timed for a kind of call: self-attention with ReLU, without padding.

    Row stats are needed, as in training with [RF]'s regularizer, unless the kind excludes them.
    """

    batch: int
    heads: int
    length: int
    head_dim: int
    dtype: torch.dtype
    dropout_p: float = 0.0
    need_row_stats: bool = True

    def passes(self, device: torch.device) -> dict[KernelName, Callable[[], object]]:
        """Return a function per kernel that runs it; both backward kernels run in the same pass."""
        shape = (self.batch, self.heads, self.length, self.head_dim)
        q, k, v = (torch.randn(shape, device=device, dtype=self.dtype).requires_grad_() for _ in range(3))
        grad = torch.randn(shape, device=device, dtype=self.dtype)
        params = PointwiseParams("relu", torch.full((1, 1), (self.head_dim * self.length / 2) ** -0.5, device=device))

        def attend() -> list[Tensor]:
            results = pointwise_triton.attend(
                q, k, v, params, None, False, self.dropout_p, self.need_row_stats, self.dtype
            )
            return [result for result in results if result is not None]

        outputs = attend()
        grads = [grad, *map(torch.ones_like, outputs[1:])]

        def backward() -> tuple[Tensor, ...]:
            return torch.autograd.grad(outputs, (q, k, v), grads, retain_graph=True)

        return {"forward": attend, "backward_dq": backward, "backward_dkdv": backward}


TYPICAL_CALLS: dict[CallKind, _TypicalCall] = {
    "short": _TypicalCall(128, 8, 64, 64, torch.bfloat16),
    "long": _TypicalCall(8, 8, 2048, 64, torch.bfloat16, need_row_stats=False),
    "long_full": _TypicalCall(8, 8, 2048, 64, torch.bfloat16),
    "dropout": _TypicalCall(8, 8, 2048, 64, torch.bfloat16, 0.1),
    "wide": _TypicalCall(8, 8, 2048, 128, torch.bfloat16),
    "wide_dropout": _TypicalCall(8, 8, 2048, 128, torch.bfloat16, 0.1),
    "float32": _TypicalCall(8, 8, 1024, 64, torch.float32),
}


def tune(
    device: torch.device, kinds: Iterable[CallKind] | None = None, report: Callable[[str], object] = print
) -> tuned_blocks.Blocks:
    """Time every candidate, remember the fastest of each kernel and kind in the user's cache, and return them.

    Args:
        device: a GPU.
        kinds: which kinds of calls to tune; by default all.
        report: gets the lines of a Markdown table, with times relative to the blocks that were used so far.

    Raises:
        OSError, UserError: the result cannot be written.
        RuntimeError: the GPU reported an error, after which it cannot be used.
    """
    found: tuned_blocks.Blocks = {}
    report("| kernel | kind | BLOCK_T | BLOCK_S | warps | stages | time / time so far |")
    report("|---|---|---|---|---|---|---|")
    for kind in kinds or get_args(CallKind):
        best: tuned_blocks.Blocks = {}
        for kernel, work in TYPICAL_CALLS[kind].passes(device).items():
            blocks = fitting_blocks(kernel, kind, device)
            relative_times = _relative_times(blocks, work, device)
            fastest = min(relative_times, key=relative_times.__getitem__)
            if relative_times[fastest] > 1 - MIN_GAIN:
                fastest = blocks.config
            blocks.config = fastest
            best[kernel] = {kind: fastest}
            report("| " + " | ".join(map(str, (kernel, kind, *fastest, f"{relative_times[fastest]:.3f}"))) + " |")
        tuned_blocks.write(device, best)
        for kernel in best:
            found[kernel] = found.get(kernel, {}) | best[kernel]
    return found


def _relative_times(
    blocks: FittingBlocks, work: Callable[[], object], device: torch.device
) -> dict[LaunchConfig, float]:
    """Return the time of every candidate that fits, relative to the current blocks, which stay what they are."""
    reference = kernel_seconds(work, device)
    current = blocks.config  # after the first launch: smaller ones, if those of the table do not fit
    times = {current: 1.0}
    try:
        for candidate in CANDIDATES:
            blocks.config = candidate
            if candidate != current and (elapsed := _seconds_if_it_compiles(work, device)):
                times[blocks.config] = min(elapsed / reference, times.get(blocks.config, math.inf))
    finally:
        blocks.config = current
    return times


def _seconds_if_it_compiles(work: Callable[[], object], device: torch.device) -> float | None:
    try:
        return kernel_seconds(work, device)
    except Exception:  # Triton has many types of errors for what the compiler or the GPU refuses
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # raises again if the GPU itself failed
        return None
