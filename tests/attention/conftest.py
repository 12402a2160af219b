"""What the tests of attention share: bfloat16 in Triton's interpreter, and no garbage of other tests."""

import gc

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


@pytest.fixture(autouse=True, scope="module")
def without_garbage_of_other_tests():
    """Triton's interpreter reads kernels with `ast.parse`, which fails in Python 3.11 if another call interrupts it.

    Collecting garbage does if it prints a traceback, as for fairseq's datasets that could not be opened.
    """
    gc.collect()
