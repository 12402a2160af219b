"""Verify relumt's Hopper kernels against float64, and time them if they are right.

PyTorch fills the memory of new tensors with NaN here, so that what a kernel does not write is noticed. Times are those
of CUDA graphs with several launches: launching takes the host longer than the GPU needs for short sentences.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from calls import Call, import_relumt, make_call, reference, unpack_bits
from jobs import DROPOUT, TIMED_BATCH, VERIFIED_BATCH, Job
from torch import Tensor

MAX_ERROR = {"bfloat16": 0.01, "float16": 0.002}
"""Rounding weights and outputs makes errors of about 0.003 in bfloat16 and 0.0004 in float16."""
MAX_ELEMENT_FACTOR = 4
"""How many times as large the largest error of an element may be, relative to the largest element."""
LAUNCHES = 5
BURSTS, PAUSE = 15, 0.01
"""Replays of a graph, and seconds between them: without a pause, the GPU gets hot and slow."""


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the time until the first launch is over, then errors at each length, then times at each length."""
    kernels = import_relumt("hopper.launch")
    start = time.perf_counter()
    make_call(job, 1, 128, 128, "cuda").forward(kernels)
    torch.cuda.synchronize()
    yield {"seconds to start": time.perf_counter() - start}
    yield from verify(job, kernels, "cuda")
    for n in job.timed:
        call = make_call(job, TIMED_BATCH, n, n, "cuda")
        yield {"n": n, **time_call(call, kernels)}


def verify(job: Job, kernels: Any, device: str) -> Iterator[dict[str, Any]]:
    """Yield errors at each pair of lengths.

    Raises:
        ValueError: an error is larger than MAX_ERROR.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)  # this also fills the memory of new tensors
    worst = 0.0
    for T, S in job.lengths:
        errors = relative_errors(make_call(job, VERIFIED_BATCH, T, S, device), kernels)
        worst = max(worst, *errors.values())
        yield {"T": T, "S": S, "errors": errors}
    torch.use_deterministic_algorithms(False)
    if worst > MAX_ERROR[job.dtype]:
        raise ValueError(f"wrong: the relative error {worst:.2g} is larger than {MAX_ERROR[job.dtype]}")


def relative_errors(call: Call, kernels: Any) -> dict[str, float]:
    """Launch the kernels; return name of the output → error."""
    output, weight_sum, w_log_w, kept_bits = call.forward(kernels)
    grads = call.backward(kernels, kept_bits)
    T, S = call.q.shape[2], call.k.shape[2]
    kept = None if kept_bits is None else unpack_bits(kept_bits, T, S).unflatten(0, call.q.shape[:2])
    expected = reference(call, kept)
    outputs = {"out": output, "Σw": weight_sum, "Σw log w": w_log_w}
    outputs |= dict(zip(("dq", "dk", "dv"), grads, strict=True))
    if kept is not None and kept.numel() > 1e6 and not (call.job.padded or call.job.causal):
        outputs["kept"] = kept.double().mean()  # blocks that no query visits have no bits
        expected["kept"] = torch.tensor(1 - round(DROPOUT * 128) / 128)
    return {name: relative_error(x, expected[name]) for name, x in outputs.items() if x is not None}


def relative_error(x: Tensor, expected: Tensor) -> float:
    """Return ‖x − expected‖ / ‖expected‖, or that of the largest element if it is much larger; infinite for NaN."""
    x, expected = x.double(), expected.to(x.device, torch.float64)
    error = (x - expected).norm() / expected.norm()
    element_error = (x - expected).abs().max() / expected.abs().max() / MAX_ELEMENT_FACTOR
    return torch.maximum(error, element_error).nan_to_num(nan=math.inf).item()


def time_call(call: Call, kernels: Any) -> dict[str, float]:
    """Return milliseconds of the forward and the backward pass, and of the host for launching them."""
    kept = call.forward(kernels)[3]

    def forward() -> Any:
        return call.forward(kernels)

    def backward() -> Any:
        return call.backward(kernels, kept)

    return {
        "forward": time_graph(forward),
        "backward": time_graph(backward),
        "host forward": time_host(forward),
        "host backward": time_host(backward),
    }


def time_host(work: Callable[[], Any]) -> float:
    """Return the milliseconds in which the host launches `work`."""
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        work()
    return (time.perf_counter() - start) * 1000 / LAUNCHES


def time_passes(forward: Callable[[], list[Tensor]], inputs: list[Tensor], grads: list[Tensor]) -> dict[str, float]:
    """Return milliseconds of the forward and the backward pass of a function that autograd knows.

    The backward pass is timed with the forward pass, because a CUDA graph must contain what it differentiates.
    """
    both = time_graph(lambda: torch.autograd.grad(forward(), inputs, grads))
    alone = time_graph(forward)
    return {"forward": alone, "backward": both - alone}


def time_graph(work: Callable[[], Any]) -> float:
    """Return the milliseconds of `work`, the median over replays of a CUDA graph with several launches."""
    work()  # compiles what it needs
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            work()
    times: list[float] = []
    for _ in range(BURSTS):
        time.sleep(PAUSE)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()  # wakes the GPU
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / LAUNCHES)
    return sorted(times)[len(times) // 2]
