"""Time the kernels that other GPUs use, `pointwise_triton`, for the same calls, to find where each is faster."""

from collections.abc import Callable, Iterator
from typing import Any

from calls import Call, import_relumt, make_call
from jobs import TIMED_BATCH, Job
from kernel_jobs import time_host, time_passes
from torch import Tensor


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield milliseconds of both passes at each length."""
    for n in job.timed:
        call = make_call(job, TIMED_BATCH, n, n, "cuda")
        yield {"n": n} | time_passes(*make_passes(call)) | time_hosts(call)


def time_hosts(call: Call) -> dict[str, float]:
    """Return the milliseconds in which the host launches each pass."""
    kernels = import_relumt("pointwise_triton")
    return {
        "host forward": time_host(lambda: call.forward(kernels)),
        "host backward": time_host(lambda: kernels.run_backward(call.grad_out, *call.row_grads, *call.inputs)),
    }


def make_passes(call: Call) -> tuple[Callable[[], list[Tensor]], list[Tensor], list[Tensor]]:
    """Return a function that computes the outputs of `call`, its inputs, and the gradients of its outputs."""
    pointwise_operator, pointwise_params = import_relumt("pointwise_operator"), import_relumt("pointwise_params")
    inputs = [x.detach().requires_grad_() for x in (call.q, call.k, call.v)]
    params = pointwise_params.PointwiseParams(call.job.activation, call.factor, call.bias)

    def forward() -> list[Tensor]:
        options = (call.job.causal, call.dropout_p, call.row_sums, call.q.dtype, "pointwise_triton")
        outputs = pointwise_operator.attend(*inputs, params, call.key_mask, *options)
        return [x for x in outputs if x is not None]

    return forward, inputs, [x for x in (call.grad_out, *call.row_grads) if x is not None]
