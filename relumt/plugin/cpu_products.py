"""Matrix products on this CPU: whether bf16 is fast, the fastest backend that is accurate in fp32, compiled products.

PyTorch computes products of fp32 with MKL. `torch.set_float32_matmul_precision("medium")` allows it to use oneDNN with
bf16 inside, and what that means depends on the CPU:

    AVX-512 without AMX   oneDNN in fp32, as accurate as MKL; on AMD, where MKL avoids AVX-512, 2.3 times as fast
    AMX                   bf16, with errors of 1e-3
    neither               nothing changes: MKL

The backend is chosen by the CPU's capabilities and by the errors of a few products, never by timing, so a resumed run
uses the backend that it started with.

oneDNN compiles a product for each shape. It keeps 1,024 of them, and PyTorch keeps 1,024 more, although the shapes of
batches seldom recur. Without a limit, training on Multi30k held 4 GiB after ten epochs.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Fp32Backend = Literal["default", "onednn"]

TOLERANCE = 1e-6
"""Largest relative error of a product in fp32. Rounding in fp32 causes about 3e-7, rounding to bf16 2e-3."""

LINEAR_SIZES = ((64, 512, 256), (300, 256, 96), (33, 2048, 65))
"""(rows, inner dimension, columns) of the products that are checked; oneDNN leaves small ones to MKL."""

BATCHED_SIZES = ((32, 28, 64, 28), (4, 200, 64, 150))
"""(batch, rows, inner dimension, columns), as in attention."""

COMPILED_PRODUCTS = 64
"""Enough for all steps of a beam search with the same number of hypotheses."""

CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the number of products that oneDNN and PyTorch keep."""


def limit_compiled_products() -> None:
    """Let oneDNN and PyTorch keep few compiled products, unless the user has set a number.

    Without effect after the first product that oneDNN computes in the process.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(COMPILED_PRODUCTS))


def has_fast_bf16() -> bool:
    """Return whether the CPU has instructions for products of bf16; without them, they are slower than in fp32."""
    return _has_any("avx512_bf16", "amx_bf16")


def select_fp32_backend() -> Fp32Backend:
    """Let PyTorch compute fp32 products with the fastest accurate backend of this CPU, and return which it is.

    This sets PyTorch's global setting, because backward passes run outside of any context. A setting that is not
    PyTorch's default is left alone, and so is a machine with a GPU, where "medium" would mean less than fp32.
    """
    can_use_onednn = _has_any("avx512_f") and not _has_any("amx_tile", "amx_bf16") and not torch.cuda.is_available()
    if torch.get_float32_matmul_precision() == "highest" and can_use_onednn:
        torch.set_float32_matmul_precision("medium")
        if not largest_product_error() <= TOLERANCE:  # NaN is refused, too
            torch.set_float32_matmul_precision("highest")
    return "onednn" if torch.get_float32_matmul_precision() == "medium" else "default"


@contextmanager
def products_of_strided_tensors() -> Iterator[None]:
    """Let MKL compute the fp32 products of a block on a CPU: oneDNN first copies operands that are not contiguous."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _has_any(*capabilities: str) -> bool:
    """Return whether PyTorch knows that the CPU has one of these; older versions of PyTorch know of none."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(known.get(name, False) for name in capabilities)


def largest_product_error() -> float:
    """Return the largest relative error (Frobenius norm) of products in fp32, compared with float64; NaN if one is.

    The products are x @ Wᵀ + b with its gradients, and batched q @ kᵀ. The operands are always the same, and the global
    random state is left alone. One thread computes, because OpenMP hangs in the child of a process that has used
    several.
    """
    generator, errors = torch.Generator().manual_seed(0), []

    def check(product: Callable[..., Tensor], *operands: Tensor) -> None:
        exact = product(*(x.double() for x in operands))
        errors.append(float((product(*operands) - exact).norm() / exact.norm()))

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows, inner, columns in LINEAR_SIZES:
            sizes = (rows, inner), (columns, inner), (columns,), (rows, columns)
            x, weight, bias, grad = (torch.randn(size, generator=generator) for size in sizes)
            check(F.linear, x, weight, bias)
            check(torch.mm, grad.T, x)
            check(torch.mm, grad, weight)
        for batch, rows, inner, columns in BATCHED_SIZES:
            q, k = (torch.randn(batch, length, inner, generator=generator) for length in (rows, columns))
            check(torch.bmm, q, k.mT)
    finally:
        torch.set_num_threads(num_threads)
    return float(torch.tensor(errors).max())
