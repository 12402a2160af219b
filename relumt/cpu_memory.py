"""Memory of training on a CPU: tensors reuse what others have freed, and few compiled products are kept.

By default glibc returns each large tensor to the kernel, which clears the pages of the next one. And oneDNN compiles a
product for each shape; it keeps 1,024 of them, and PyTorch keeps 1,024 more, although the shapes of batches seldom
recur. docs/results/training_speed.md has what both cost.
"""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt, from <malloc.h>."""

NEVER_TRIM = 2**31 - 1
"""Bytes of free memory from which on glibc would return it: the largest int, 2 GiB."""

COMPILED_PRODUCTS = 64
"""Enough for all steps of a beam search with the same number of hypotheses."""

PRODUCT_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the number of products that oneDNN and PyTorch keep."""


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensors. Other C libraries, and settings of the user, are left alone."""
    is_set_by_user = any(
        name in os.environ for name in ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
    )
    if sys.platform != "linux" or is_set_by_user:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)


def limit_compiled_products() -> None:
    """Let oneDNN and PyTorch keep few compiled products, unless the user has set a number.

    Without effect after the first product that oneDNN computes in the process.
    """
    for name in PRODUCT_CACHES:
        os.environ.setdefault(name, str(COMPILED_PRODUCTS))
