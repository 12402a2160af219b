"""What Triton's interpreter lacks."""

import pytest
import torch
from torch import Tensor


@pytest.fixture
def bfloat16(monkeypatch):
    """Have the interpreter multiply and round bfloat16 as a GPU does. It keeps the numbers' bits as integers, which it
    would multiply, and cuts off what it should round to the nearest."""
    if torch.cuda.is_available():
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    builder, handle, language = interpreter.InterpreterBuilder, interpreter.TensorHandle, interpreter.tl
    cast, dot = builder.cast_impl, builder.create_dot

    def number(bits) -> Tensor:
        return torch.from_numpy(bits.view("int16")).view(torch.bfloat16)

    def rounded(self, x, wanted):
        if (x.dtype.scalar, wanted.scalar) != (language.float32, language.bfloat16):
            return cast(self, x, wanted)
        bits = torch.from_numpy(x.data).to(torch.bfloat16).view(torch.int16).numpy().view("uint16")
        return handle(bits, language.bfloat16)

    def product(self, a, b, total, *options):
        if a.dtype.scalar == language.bfloat16:
            a, b = (handle(number(x.data).float().numpy(), language.float32) for x in (a, b))
        return dot(self, a, b, total, *options)

    monkeypatch.setattr(builder, "cast_impl", rounded)
    monkeypatch.setattr(builder, "create_dot", product)
