"""Attention of a single head in 16-bit integers: in NumPy, and with the kernels of kernels.c, bit for bit the same.

Shapes: n queries and keys, d components. q, k and v are int16 [n, d]; everything is exact.

    Inhibitor      z_ij = max(⌊Σ_c |q_ic − k_jc| / 2^shift⌋ − alpha, 0)     output_ic = Σ_j max(v_jc − z_ij, 0)
    dot product    s_ij = Σ_c q_ic·k_jc     w_i = softmax(s_i)              output_ic = ⌊Σ_j w_ij·v_jc / 2^B⌋

2^shift stands for γ, and alpha for α, of [IN] Eq. 3–4. The abstract of [IN] names what its attention saves: "the
expansion to double precision often required by matrix multiplication" and "costly Softmax evaluations". What Table 2
computed in place of softmax, and with which d, is in no text that we have. Ours is a softmax of base 2 with x in 1/16:

    x_j = min(⌊(max s − s_j) / 2^shift⌋, 255)    e_j = ⌊2^14·(1 − (x mod 16)/32) / 2^⌊x/16⌋⌋ ≈ 2^(14 − x/16)
    w_j = ⌊e_j·⌊2^(16 + B) / Σe⌋ / 2^16⌋         so that Σ_j w_j ≤ 2^B

e_j is at most 6.2% above 2^(14 − x/16), and less than 1 below. Weights are rounded down, so with B = 7 every weight of
more than 128 equal scores is 0, and so is the output.

The kernels sum in 16 or 32 bits, the width. No sum overflows if these are below 2^(width − 1), that is 32,768 for 16
bits; `random_problem` keeps to this up to n = 256 and d = 128:

    Inhibitor      d·max|q_ic − k_jc|            n·max v
    dot product    d·max|q_ic|·max|k_jc|         2^B·max|v_jc|       B = 7 for 16 bits, 13 for 32
"""

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from relumt.errors import UserError

Array = np.ndarray[Any, Any]

WEIGHT_BITS = {16: 7, 32: 13}
"""Width of the sums → B: the weights of a row sum to at most 2^B."""

MAX_EXPONENT = 255
"""The largest x of the integer softmax, for a weight of 2^-16 before the normalization."""

MAX_INPUT, MAX_VALUE = 15, 100
"""The largest |q| and |k|, and the largest |v|, of a random problem."""


CODES, ATTENTIONS, WIDTHS = ("tiled", "plain"), ("inhibitor", "dot_product"), (16, 32)
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared")
MARCH = {"SSE2": "x86-64", "AVX2": "x86-64-v3", "AVX-512": "x86-64-v4"}
"""Instruction set, with vectors of 128, 256 or 512 bits → the value of the compiler's flag -march."""
MAX_ROWS = 4
"""The most rows that a kernel computes at a time, as in kernels.c."""
CACHE_LINE = 64
"""Bytes; vectors that cross a border of it take twice as long to load."""

Run = Callable[[int], None]
"""Computes an attention this many times."""


@dataclass(frozen=True)
class Problem:
    """A single head's attention.

    Attributes:
        q, k, v: int16 [n, d]; n and d are multiples of 32, which is the tile of the kernels.
        inhibitor_shift: the Inhibitor divides distances by 2 to this power.
        alpha: what it subtracts from them.
        softmax_shift: scores are divided by 2 to this power, then counted in 1/16 of a power of two.
    """

    q: Array
    k: Array
    v: Array
    inhibitor_shift: int
    alpha: int
    softmax_shift: int

    def expected(self, attention: str, width: int) -> Array:
        """Return the exact output, int64 [n, d], of "inhibitor" or "dot_product" with sums of `width` bits."""
        if attention == "inhibitor":
            return inhibitor(self.q, self.k, self.v, self.inhibitor_shift, self.alpha)
        return dot_product(self.q, self.k, self.v, self.softmax_shift, width)


def random_problem(n: int, d: int, seed: int = 1) -> Problem:
    """Return a random problem; about a third of the pairs of a key and a component pass the Inhibitor."""
    generator = np.random.default_rng(seed)

    def draw(largest: int) -> Array:
        return generator.integers(-largest, largest + 1, (n, d)).astype(np.int16)

    q, k, v = draw(MAX_INPUT), draw(MAX_INPUT), draw(MAX_VALUE)
    # A distance is about 10.3·d, hence about 82 after the shift; alpha removes half.
    return Problem(q, k, v, inhibitor_shift=d.bit_length() - 4, alpha=40, softmax_shift=5)


def inhibitor(q: Array, k: Array, v: Array, shift: int, alpha: int) -> Array:
    """Return the Inhibitor's output, int64 [n, d], query by query."""
    queries, keys, values = (x.astype(np.int64) for x in (q, k, v))
    output = np.empty_like(values)
    for i, query in enumerate(queries):
        z = np.maximum((np.abs(query - keys).sum(1) >> shift) - alpha, 0)
        output[i] = np.maximum(values - z[:, None], 0).sum(0)
    return output


def dot_product(q: Array, k: Array, v: Array, shift: int, width: int) -> Array:
    """Return the output of attention with dot products, int64 [n, d]; `width` sets the precision of the weights."""
    scores = q.astype(np.int64) @ k.astype(np.int64).T
    return (softmax(scores, shift, width) @ v.astype(np.int64)) >> WEIGHT_BITS[width]


def softmax(scores: Array, shift: int, width: int) -> Array:
    """Return the integer softmax of each row, int64 [n, n]."""
    powers = power_of_two(np.minimum((scores.max(1, keepdims=True) - scores) >> shift, MAX_EXPONENT))
    inverse = 2 ** (16 + WEIGHT_BITS[width]) // powers.sum(1, keepdims=True)
    return powers * inverse >> 16


def power_of_two(x: Array) -> Array:
    """Return 2^(14 − x/16), interpolated linearly between whole exponents and rounded down."""
    return (2**14 - (x % 16) * 2**9) >> x // 16


class Arguments(ctypes.Structure):
    """The struct `problem` of kernels.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "output", "sums", "weights")),
        *((name, ctypes.c_void_p) for name in ("positive_values", "key_sums")),
        *((name, ctypes.c_int32) for name in ("n", "d", "shift", "alpha")),
    ]


class Kernels:
    """The kernels of one instruction set and one width of sums."""

    def __init__(self, instruction_set: str, width: int) -> None:
        self.width = width
        with tempfile.TemporaryDirectory() as folder:
            library, source = f"{folder}/kernels.so", str(files(__package__).joinpath("kernels.c"))
            run_compiler(*flags(instruction_set), f"-DACCUMULATOR_BITS={width}", source, "-o", library)
            self._library = ctypes.CDLL(library)

    def prepare(self, attention: str, code: str, problem: Problem) -> tuple[Run, Array]:
        """Bind a kernel to a problem; return what runs it, and the output [n, d] that it writes.

        Packing keys and values for tiled code is not part of the time: a layer could write them packed, because a
        projection may write its output in any order.
        """
        n, d = problem.q.shape
        k, v = (problem.k, problem.v) if code == "plain" else (pack(problem.k.T), pack(problem.v))
        output = aligned(np.zeros((n, d), f"int{self.width}"))
        sums, weights = np.zeros((MAX_ROWS, max(n, d)), np.int32), np.zeros((MAX_ROWS, n), np.int16)
        scratch = sums, weights, np.zeros((n, d), np.int16), np.zeros(n, np.int32)
        arrays = [*map(aligned, (problem.q, k, v)), output, *map(aligned, scratch)]
        shift = problem.inhibitor_shift if attention == "inhibitor" else problem.softmax_shift
        arguments = Arguments(*(array.ctypes.data for array in arrays), n, d, shift, problem.alpha)
        arguments.arrays = arrays  # they must live as long as their addresses
        kernel, repeat = self._library[f"{code}_{attention}"], self._library.repeat
        return lambda times: repeat(kernel, ctypes.byref(arguments), times), output


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


def run_compiler(*arguments: str) -> str:
    """Return what $CC, or cc, prints; raise UserError if it fails, which it explains on stderr itself."""
    command = [*shlex.split(os.environ.get("CC") or "cc"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        needed = "the kernels need x86-64 and, as cc or $CC, gcc 11, clang 12 or newer"
        raise UserError(f"{shlex.join(command)} ended with status {done.returncode}; {needed}")
    return done.stdout


def flags(instruction_set: str) -> list[str]:
    """Return the compiler's flags."""
    return [*FLAGS, f"-march={MARCH[instruction_set]}"]
