"""Calls the compiled kernels through ctypes."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relumt.errors import AttemptFailedError
from relumt.integer_attention import oracle
from relumt.integer_attention.compiler import Compiler, InstructionSet
from relumt.integer_attention.oracle import Array
from relumt.integer_attention.problem import Problem

Attention = Literal["inhibitor", "dot_product"]
Code = Literal["tiled", "plain"]
MAX_ROWS = 4
"""The most rows that a kernel computes at a time, as in kernels.c."""
CACHE_LINE = 64
"""Bytes; vectors that cross a border of it take twice as long to load."""


class _Arguments(ctypes.Structure):
    """The struct `problem` of kernels.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "output", "sums", "weights")),
        *((name, ctypes.c_void_p) for name in ("positive_values", "key_sums")),
        *((name, ctypes.c_int32) for name in ("n", "d", "shift", "alpha")),
    ]


@dataclass(frozen=True)
class PreparedCall:
    """A kernel bound to a problem that was found to be within its bounds.

    Attributes:
        run: computes the output this many times.
        output: int16 or int32 [n, d], written by `run`.
        arrays: all memory that the kernel reads and writes, which must live as long as `run`.
    """

    run: Callable[[int], None]
    output: Array
    arrays: list[Array]


class Kernels:
    """The kernels of one instruction set and one width of sums; building them raises AttemptFailedError."""

    def __init__(self, compiler: Compiler, instruction_set: InstructionSet, width: int) -> None:
        self.width = width
        path = compiler.build(instruction_set, width)
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise AttemptFailedError(f"{path} cannot be loaded ({error}); delete it and try again") from None

    def prepare(self, attention: Attention, code: Code, problem: Problem) -> PreparedCall:
        """Bind a kernel to a problem; keys and values are packed for tiled code, which is not part of its time.

        A layer could write them packed, because a projection may write its output in any order.

        Raises:
            UserError: a sum could overflow.
        """
        n, d = problem.q.shape
        if attention == "inhibitor":
            problem.require_inhibitor_fits(self.width)
            shift = problem.inhibitor_shift
        else:
            problem.require_dot_product_fits(self.width)
            shift = problem.softmax_shift
        k, v = (problem.k, problem.v) if code == "plain" else (pack(problem.k.T), pack(problem.v))
        output = aligned(np.zeros((n, d), f"int{self.width}"))
        sums, weights = np.zeros((MAX_ROWS, max(n, d)), np.int32), np.zeros((MAX_ROWS, n), np.int16)
        positive_values, key_sums = np.zeros((n, d), np.int16), np.zeros(n, np.int32)
        inputs = problem.q, k, v
        arrays = [*map(aligned, inputs), output, *map(aligned, (sums, weights, positive_values, key_sums))]
        arguments = _Arguments(*(array.ctypes.data for array in arrays), n, d, shift, problem.alpha)
        kernel, repeat = self._library[f"{code}_{attention}"], self._library.repeat

        def run(times: int) -> None:
            repeat(kernel, ctypes.byref(arguments), times)

        return PreparedCall(run, output, arrays)

    def expected(self, attention: Attention, problem: Problem) -> Array:
        """Return the oracle's output, int64 [n, d]."""
        inputs = problem.q, problem.k, problem.v
        if attention == "inhibitor":
            return oracle.inhibitor(*inputs, problem.inhibitor_shift, problem.alpha)
        return oracle.dot_product(*inputs, problem.softmax_shift, self.width)


def pack(matrix: Array) -> Array:
    """Interleave two rows at a time: [r, c] -> [r/2, c, 2]."""
    rows, columns = matrix.shape
    return matrix.reshape(rows // 2, 2, columns).transpose(0, 2, 1)


def aligned(array: Array) -> Array:
    """Return a copy whose rows follow each other in memory and whose first is at the start of a cache line."""
    memory = np.empty(array.nbytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
