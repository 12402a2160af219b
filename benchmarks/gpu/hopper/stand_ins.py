"""Stand-ins for measurements, which test `measure.py` and the verification on a machine without a GPU."""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from jobs import Job


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Verify an implementation in fp32 by PyTorch, hang with a child process, or raise."""
    if job.config == "raises":
        raise RuntimeError("stand-in for an error\nwith a second line")
    if job.config == "hangs":
        sleeping = subprocess.Popen(["sleep", "600"])
        yield {"processes": [os.getpid(), sleeping.pid]}
        time.sleep(600)
    from kernel_jobs import verify  # slow to import

    for checked in (
        Job("forward", "CPU", row_stats=True),
        Job("forward", "CPU", rounds=10),
        Job("dq", "CPU"),
        Job("dkdv", "CPU", writes_bits=True),
    ):
        yield from verify(checked, [(1, 2, 256, 16)], "cpu", launch_on_cpu)


def launch_on_cpu(job: Job, x: Any) -> None:
    """Write what a kernel writes."""
    import torch
    from jobs import DROPOUT
    from kernel_jobs import pack_bits, unpack_bits

    q, k, v, grad_out = (operand.float() for operand in (x.q, x.k, x.v, x.grad_out))
    scores = q @ k.mT  # [B, H, n, n]
    weights = scores.relu() * x.scale
    if job.kernel == "forward":
        x.weight_sum.copy_(weights.sum(-1))
        x.w_log_w.copy_(torch.special.entr(weights).sum(-1).neg())
        if job.rounds:
            kept = torch.rand_like(weights) >= round(DROPOUT * 128) / 128
            x.bits.copy_(pack_bits(kept.flatten(0, 1)))
            weights = weights * kept
        x.out.copy_(weights @ v)
    elif job.kernel == "dq":
        passes = unpack_bits(x.bits).view_as(scores).mT
        x.grad_q.copy_((grad_out @ v.mT) * passes * x.scale @ k)
    else:
        x.bits.copy_(pack_bits((scores > 0).mT.flatten(0, 1)))
        x.grad_k.copy_(((grad_out @ v.mT) * (scores > 0) * x.scale).mT @ q)
        x.grad_v.copy_(weights.mT @ grad_out)
