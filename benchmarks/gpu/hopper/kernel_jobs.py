"""Verify a kernel against float64, and time it if it is right.

    s = q kᵀ,   w_ij = f ReLU(s_ij),   out = w v,   Σ_j w_ij,   Σ_j w_ij log w_ij
    dV = wᵀ dO,   dS_ij = f (dO vᵀ)_ij where s_ij > 0, else 0,   dQ = dS k,   dK = dSᵀ q

q, k, v, out and their gradients are [B, H, n, D], and w is [B, H, n, n]. An error is ‖x − reference‖ / ‖reference‖.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jobs import DROPOUT, TIMED_SHAPES, VERIFIED_SHAPES, Job
from launches import BLOCK, Tensors, launch, make_tensors
from torch import Tensor
from triton.testing import do_bench

MAX_ERROR = 0.01
"""Rounding weights and outputs to bfloat16 makes errors of about 0.003."""


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the time of compiling, then errors at each verified shape, then times at each timed shape."""
    x = make_tensors(*VERIFIED_SHAPES[0], "cuda")
    start = time.perf_counter()
    launch(job, x, only_compile=True)
    yield {"seconds to compile": time.perf_counter() - start}
    yield from verify(job, VERIFIED_SHAPES, "cuda", launch)
    for shape in TIMED_SHAPES:
        x = make_tensors(*shape, "cuda")
        launch(job, x)
        first = [output.clone() for output in x.outputs(job).values()]
        milliseconds = do_bench(lambda x=x: launch(job, x), return_mode="median")
        if not all(map(torch.equal, first, x.outputs(job).values())):
            raise ValueError(f"wrong: two launches with the same inputs differ at n = {shape[2]}")
        yield {"n": shape[2], "ms": milliseconds}


def verify(
    job: Job, shapes: list[tuple[int, int, int, int]], device: str, launch: Callable[[Job, Tensors], None]
) -> Iterator[dict[str, Any]]:
    """Yield a kernel's errors at each shape.

    Raises:
        ValueError: an error is larger than MAX_ERROR.
    """
    worst = 0.0
    for shape in shapes:
        errors = relative_errors(job, make_tensors(*shape, device), launch)
        worst = max(worst, *errors.values())
        yield {"n": shape[2], "errors": errors}
    if worst > MAX_ERROR:
        raise ValueError(f"wrong: the relative error {worst:.2g} is larger than {MAX_ERROR}")


def relative_errors(job: Job, x: Tensors, launch: Callable[[Job, Tensors], None]) -> dict[str, float]:
    """Launch a kernel on poisoned outputs; return name of the output → error."""
    q, k, v, grad_out = (operand.double() for operand in (x.q, x.k, x.v, x.grad_out))
    scores = q @ k.mT  # [B, H, n, n]
    positive = scores > 0
    weights = scores.relu() * x.scale
    x.bits.copy_(pack_bits(positive.mT.flatten(0, 1)))  # dq reads them; the other kernels find them poisoned
    outputs = x.outputs(job)
    for output in outputs.values():
        output.fill_(0x5555 if output.dtype == torch.int16 else math.nan)
    launch(job, x)
    bits = unpack_bits(x.bits).view_as(positive)
    if job.kernel == "forward":
        references = {
            "out": (weights * bits if job.rounds else weights) @ v,
            "Σw": weights.sum(-1),
            "Σw log w": torch.xlogy(weights, weights).sum(-1),
            "kept": torch.tensor(1 - round(DROPOUT * 128) / 128),
        }
        outputs |= {"kept": bits.double().mean()} if job.rounds else {}
    else:
        grad_scores = (grad_out @ v.mT) * positive * x.scale
        references = {
            "dq": grad_scores @ k,
            "dk": grad_scores.mT @ q,
            "dv": weights.mT @ grad_out,
            "bits": positive.mT,
        }
        outputs |= {"bits": bits} if job.writes_bits else {}
    return {name: relative_error(output, references[name]) for name, output in outputs.items()}


def relative_error(x: Tensor, reference: Tensor) -> float:
    """Return ‖x − reference‖ / ‖reference‖, infinite if x has a NaN."""
    reference = reference.to(x.device, torch.float64)
    return ((x.double() - reference).norm() / reference.norm()).nan_to_num(nan=math.inf).item()


def pack_bits(pairs: Tensor) -> Tensor:
    """Pack one bit per pair as the kernels do: [B*H, n, n] bool -> [B*H, n/128, n/2, 8, 2] int16."""
    heads, n, _ = pairs.shape
    # [B*H, row // 2, row % 2, column // 128, column // 8 % 16, column % 8] -> words, with the 16 bits last
    bits = pairs.view(heads, n // 2, 2, n // BLOCK, 16, 8).permute(0, 3, 1, 5, 2, 4)
    return (bits.int() << torch.arange(16, device=bits.device)).sum(-1).to(torch.int16)


def unpack_bits(words: Tensor) -> Tensor:
    """Invert `pack_bits`: [B*H, n/128, n/2, 8, 2] int16 -> [B*H, n, n] bool."""
    heads, _, half, _, _ = words.shape
    bits = words.int()[..., None] >> torch.arange(16, device=words.device) & 1
    return bits.permute(0, 2, 4, 1, 5, 3).reshape(heads, 2 * half, 2 * half).bool()
