"""What the tests of attention share: bfloat16 and assembly in Triton's interpreter, and no garbage of other tests."""

import gc
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor


@pytest.fixture
def bfloat16(monkeypatch):
    """Make the interpreter multiply and round bfloat16 as a GPU does.

    It keeps bfloat16 numbers as integers, which it would multiply, and truncates where a GPU rounds to nearest.
    """
    if torch.cuda.is_available():
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    builder, handle, language = interpreter.InterpreterBuilder, interpreter.TensorHandle, interpreter.tl
    original_cast, original_dot = builder.cast_impl, builder.create_dot

    def from_bits(bits) -> Tensor:
        return torch.from_numpy(bits.view("int16")).view(torch.bfloat16)

    def rounding_cast(self, x, dtype):
        if (x.dtype.scalar, dtype.scalar) != (language.float32, language.bfloat16):
            return original_cast(self, x, dtype)
        bits = torch.from_numpy(x.data).to(torch.bfloat16).view(torch.int16).numpy().view("uint16")
        return handle(bits, language.bfloat16)

    def compute_dot(self, a, b, accumulator, *options):
        if a.dtype.scalar == language.bfloat16:
            a, b = (handle(from_bits(x.data).float().numpy(), language.float32) for x in (a, b))
        return original_dot(self, a, b, accumulator, *options)

    monkeypatch.setattr(builder, "cast_impl", rounding_cast)
    monkeypatch.setattr(builder, "create_dot", compute_dot)


def to_halves(packed):
    """Return float16 numbers from packed pairs, [..., 2]."""
    return packed.view("float16").reshape(*packed.shape, 2)


def to_pairs(halves):
    return numpy.ascontiguousarray(halves, "float16").view("int32")[..., 0]


INSTRUCTIONS = {
    "fma.rn.sat.f32": lambda x: numpy.clip(x * numpy.float32(2.0**100) + numpy.float32(0.5), 0, 1),
    "sub.rn.f16x2": lambda a, b: to_pairs(abs(to_halves(a) - to_halves(b))),
    "add.rn.f16x2": lambda a, b: to_pairs(to_halves(a) + to_halves(b)),
    "fma.rn.relu.f16x2": lambda a, b: to_pairs(numpy.maximum(to_halves(a) - to_halves(b), numpy.float16(0))),
    "cvt.rn.relu.f16x2.f32": lambda x: to_pairs(numpy.stack(2 * [numpy.maximum(x, 0).astype("float16")], -1)),
    "cvt.f32.f16": lambda x: tuple(numpy.moveaxis(to_halves(x).astype("float32"), -1, 0)),
}
"""What the Inhibitor's inline assembly computes, by an instruction that names it."""


@pytest.fixture
def inline_assembly(monkeypatch):
    """Let the interpreter compute inline assembly, and reduce whole rows at once instead of numbers."""
    if torch.cuda.is_available():
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter")

    def compute(self, assembly, constraints, arguments, types, is_pure, pack):
        [instruction] = [name for name in INSTRUCTIONS if f"{name} " in assembly]
        with numpy.errstate(over="ignore", invalid="ignore"):
            arrays = numpy.broadcast_arrays(*(numpy.asarray(x.data) for x in arguments))
            results = INSTRUCTIONS[instruction](*map(numpy.ascontiguousarray, arrays))
        results = results if isinstance(results, tuple) else (results,)
        handles = [interpreter.TensorHandle(x, dtype.scalar) for x, dtype in zip(results, types, strict=True)]
        return SimpleNamespace(get_result=lambda i: handles[i])

    def reduce_rows(self, inputs):
        [x] = inputs
        rows = numpy.moveaxis(x.handle.data, self.axis, 0)
        total = self.to_tensor(rows[0].copy(), x.dtype)
        for row in rows[1:]:
            total = self.combine_fn.fn(total, self.to_tensor(row.copy(), x.dtype))
        return (total,)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_inline_asm", compute, raising=False)
    monkeypatch.setattr(interpreter.ReduceOps, "generic_reduce", reduce_rows)


@pytest.fixture(autouse=True, scope="module")
def without_garbage_of_other_tests():
    """Triton's interpreter reads kernels with `ast.parse`, which fails in Python 3.11 if another call interrupts it.

    Collecting garbage does if it prints a traceback, as for fairseq's datasets that could not be opened.
    """
    gc.collect()
