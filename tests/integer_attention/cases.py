"""Problems at the bounds of the kernels, and kernels built once for all tests."""

import shutil
from functools import cache

import numpy as np
import pytest

from relumt.integer_attention.compiler import INSTRUCTION_SETS, cpu_features, find_compiler
from relumt.integer_attention.kernels import Kernels
from relumt.integer_attention.problem import Problem

N, D = 64, 32
RUNNABLE = [name for name, instruction_set in INSTRUCTION_SETS.items() if instruction_set.runs_here()]

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))) or not cpu_features(), reason="needs a C compiler on x86-64"
)


@cache
def kernels(name, width):
    """Return the kernels of an instruction set, in the cache folder of the user."""
    return Kernels(find_compiler(), INSTRUCTION_SETS[name], width)


def filled(number):
    """Return a matrix of one number."""
    return np.full((N, D), number, np.int16)


def problem(q=0, k=0, v=0, shift=0, alpha=0, softmax_shift=0):
    """Return a problem from matrices, or from the numbers that fill them."""
    matrices = [x if isinstance(x, np.ndarray) else filled(x) for x in (q, k, v)]
    return Problem(*matrices, shift, alpha, softmax_shift)
