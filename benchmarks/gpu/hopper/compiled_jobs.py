"""Compare compiled calls in a CUDA graph with eager ones: the same bits, and how long a step takes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from calls import Call, import_relumt, make_call
from jobs import TIMED_BATCH, Job
from kernel_jobs import LAUNCHES, time_graph
from torch import Tensor
from torch._dynamo.utils import counters

pointwise_operator, pointwise_params = import_relumt("pointwise_operator"), import_relumt("pointwise_params")
Step = Callable[[], list[Tensor]]
WARM_UP = 3, 30, 40
"""B, T and S of the call to compile for. All sizes of a call differ, because the compiler takes equal ones for one."""


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield milliseconds of a forward and backward pass at each length.

    Raises:
        ValueError: results differ.
    """
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(forward, backend="aot_eager", fullgraph=True, dynamic=True)
    make_step(compiled, make_call(job, *WARM_UP, "cuda"), "hopper.by_length")()
    for n in job.timed:
        call = make_call(job, TIMED_BATCH, n, n, "cuda")
        eager, step = make_step(forward, call, eager_kernel(call)), make_step(compiled, call, "hopper.by_length")
        expected = seeded(eager)
        check_equal(seeded(step), expected, f"compiled, n = {n}")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = step()
        seeded(graph.replay)
        check_equal(replayed, expected, f"in a CUDA graph, n = {n}")
        yield {"n": n, "eager step": time_step(eager), "step in a graph": time_graph(step)}
    if counters["stats"]["unique_graphs"] != 1:
        raise ValueError("lengths were compiled separately")


def seeded(function: Callable[[], Any]) -> Any:
    """Call a function with the same random numbers each time."""
    torch.manual_seed(1)
    return function()


def eager_kernel(call: Call) -> str:
    """Return the module that serves a call in eager mode."""
    is_long = import_relumt("hopper.selection").serves_sizes(call.q, call.k, call.dropout_p)
    return "hopper.launch" if is_long else "pointwise_triton"


def forward(q: Tensor, k: Tensor, v: Tensor, factor: Tensor, dropout_p: float, kernel: str) -> Any:
    """Compute attention without padding or causal mask."""
    params = pointwise_params.PointwiseParams("relu", factor)
    return pointwise_operator.attend(q, k, v, params, None, False, dropout_p, 0, q.dtype, kernel)[0]


def make_step(attend: Callable[..., Tensor], call: Call, kernel: str) -> Step:
    """Return a function that returns the output and the gradients of q, k and v."""
    inputs = [x.detach().requires_grad_() for x in (call.q, call.k, call.v)]

    def step() -> list[Tensor]:
        output = attend(*inputs, call.factor, call.dropout_p, kernel)
        return [output.detach(), *torch.autograd.grad(output, inputs, call.grad_out)]

    return step


def check_equal(found: list[Tensor], expected: list[Tensor], what: str) -> None:
    """Raise ValueError if tensors differ."""
    if not all(map(torch.equal, found, expected)):
        raise ValueError(f"{what}: other bits than in eager mode")


def time_step(step: Step) -> float:
    """Return the milliseconds of a step, the host's time included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000 / LAUNCHES
