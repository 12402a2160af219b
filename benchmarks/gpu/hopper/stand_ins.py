"""Stand-ins for measurements, which test `measure.py` and the verification on a machine without a GPU."""

import os
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from counters import parse
from jobs import Job

COUNTED = """==PROF== Connected to process 1
"ID","Kernel Name","tensor.pct","l1tex__data_bank.pct","lts__a.pct","lts__b.pct","issue_stalled_wait_per_x",\
"issue_stalled_math_per_x","issue_stalled_selected_per_x"
"","","%","%","%","%","inst","inst","inst"
"0","forward","62.5","10.5","20","30","1.5","1,024.5","2,000"
"""
ALL_OPTIONS = Job("stand-in", "all", "bfloat16", 128, True, True, True, False, True, lengths=((40, 200), (200, 40)))


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Verify an implementation by PyTorch, read ncu's output, hang with a child process, or raise."""
    if job.config == "raises":
        raise RuntimeError("stand-in for an error\nwith a second line")
    if job.config == "counts":
        yield from parse(COUNTED)
        yield {"skipped": "stand-in for ncu"}
        return
    if job.config == "hangs":
        sleeping = subprocess.Popen(["sleep", "600"])
        yield {"processes": [os.getpid(), sleeping.pid]}
        time.sleep(600)
    from kernel_jobs import verify  # slow to import

    yield from verify(ALL_OPTIONS, SimpleNamespace(run_forward=forward, run_backward=backward), "cpu")


def weigh(q: Any, k: Any, factor: Any, key_mask: Any, is_causal: bool) -> tuple[Any, Any]:
    """Return scores and weights [B, H, T, S]."""
    hidden = ~key_mask[:, None, None]
    scores = (q @ k.mT).masked_fill(hidden, 0.0)
    if is_causal:
        scores = scores.tril(k.shape[2] - q.shape[2])
    return scores, scores.relu() * factor[:, None, :, None]


def forward(
    q: Any, k: Any, v: Any, factor: Any, bias: Any, key_mask: Any, key_bounds: Any, seed: Any, activation: Any,
    is_causal: bool, dropout_p: float, stats: bool, dtype: Any,
) -> Any:  # fmt: skip
    """Compute what the forward kernel computes."""
    q, k, v = q.float(), k.float(), v.float().masked_fill(~key_mask[:, None, :, None], 0.0)
    _, weights = weigh(q, k, factor, key_mask, is_causal)
    w_log_w = (weights * weights.clamp(min=1e-30).log()).sum(-1)
    return (weights @ v).to(dtype), weights.sum(-1), w_log_w, None


def backward(
    grad_output: Any, grad_weight_sum: Any, grad_w_log_w: Any, q: Any, k: Any, v: Any, factor: Any, bias: Any,
    key_mask: Any, key_bounds: Any, seed: Any, activation: Any, is_causal: bool, dropout_p: float, kept: Any,
) -> Any:  # fmt: skip
    """Compute what the backward kernels compute."""
    hidden = ~key_mask[:, None, :, None]
    grad_output, q, k, v = grad_output.float(), q.float(), k.float(), v.float()
    scores, weights = weigh(q, k, factor, key_mask, is_causal)
    grad_scores = (grad_output @ v.masked_fill(hidden, 0.0).mT) * (scores > 0) * factor[:, None, :, None]
    return grad_scores @ k.masked_fill(hidden, 0.0), grad_scores.mT @ q, weights.mT @ grad_output
