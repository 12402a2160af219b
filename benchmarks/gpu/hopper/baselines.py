"""Time PyTorch's softmax attention by cuDNN and by FlashAttention, forward and backward, without and with dropout."""

from collections.abc import Iterator
from typing import Any

import torch
from jobs import DROPOUT, TIMED_BATCH, WIDTH, Job
from kernel_jobs import time_passes
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
CONFIGS = [
    ("cuDNN", "plain", {}, (512, 1024, 2048, 4096)),
    ("cuDNN", "causal", {"is_causal": True}, (1024, 2048)),
    ("cuDNN", "dropout", {"dropout_p": DROPOUT}, (512, 1024, 2048)),
    ("FlashAttention", "plain", {}, (512, 1024, 2048)),
    ("FlashAttention", "dropout", {"dropout_p": DROPOUT}, (512, 1024, 2048)),
]
"""Backend, name of the options, options, and lengths."""


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield times in ms, and "failed" where a backend refuses the work."""
    yield {"device": torch.cuda.get_device_name()}
    for backend, name, options, lengths in CONFIGS:
        row = {"kernel": backend, "config": job.config + name}
        for n in lengths:
            shape = TIMED_BATCH, n, WIDTH // job.head_dim, job.head_dim
            q, k, v, grad = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4))
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]

            def forward(inputs=inputs, options=options):
                return [scaled_dot_product_attention(*inputs, **options)]

            try:
                with sdpa_kernel(BACKENDS[backend]):
                    times = time_passes(forward, inputs, [grad])
            except RuntimeError as error:
                yield row | {"failed": str(error).splitlines()[0]}
                break
            yield row | {"n": n} | times
