"""Compiled matrix products on a CPU: few of them are kept.

oneDNN compiles a product for each shape. It keeps 1,024 of them, and PyTorch keeps 1,024 more, although the shapes of
batches seldom recur. docs/results/training_speed.md has what that costs.
"""

import os

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
