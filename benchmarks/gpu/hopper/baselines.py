"""Time PyTorch's softmax attention by cuDNN and by FlashAttention, forward and backward, without and with dropout."""

from collections.abc import Iterator
from typing import Any

import torch
from jobs import DROPOUT, TIMED_SHAPES, Job
from launches import make_tensors
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield times in ms, and "failed" where a backend refuses the work."""
    yield {"device": torch.cuda.get_device_name()}
    for dropout in (0.0, DROPOUT):
        config = f"{job.config}, dropout {dropout}" if dropout else job.config
        for name, backend in BACKENDS.items():
            for shape in TIMED_SHAPES:
                x = make_tensors(*shape, "cuda")
                inputs = [operand.detach().requires_grad_() for operand in (x.q, x.k, x.v)]

                def forward(inputs=inputs, dropout=dropout):
                    return scaled_dot_product_attention(*inputs, dropout_p=dropout)

                try:
                    with sdpa_kernel(backend):
                        out = forward()
                        passes = {
                            "forward": forward,
                            "backward": lambda out=out, inputs=inputs, x=x: torch.autograd.grad(
                                out, inputs, x.grad_out, retain_graph=True
                            ),
                        }
                        for pass_name, work in passes.items():
                            milliseconds = do_bench(work, return_mode="median")
                            yield {
                                "kernel": f"{name} {pass_name}", "config": config, "n": shape[2], "ms": milliseconds
                            }  # fmt: skip
                except RuntimeError as error:
                    yield {"kernel": f"{name} forward", "config": config, "failed": str(error).splitlines()[0]}
                    break
