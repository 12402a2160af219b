"""Every mechanism gives the same results when compiled, exported, transformed or in half precision, for any length.

docs/mechanisms.md says so. The tests of ONNX need `pip install '.[onnx]'`, as `make test-slow` does.
"""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.export import Dim

from relumt.attention import MECHANISMS, MultiheadAttention

OPEN = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
"""Batch and length of an exported program's inputs."""


class Attention(nn.Module):
    """A layer with its norm, as it is exported."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        self.layer = MultiheadAttention(8, 2, batch_first=True, mechanism=name)

    def forward(self, x, padding):
        return self.layer(x, x, x, padding, need_weights=False)[0]


def inputs(length, dtype=torch.float32):
    """Three sentences [3, T, 8] and their padding [3, T]; the last one has no keys, so all its rows are null."""
    x = torch.randn(3, length, 8, generator=torch.Generator().manual_seed(length)).to(dtype)
    return x, torch.arange(length) >= torch.tensor([[length], [length - 2], [0]])


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", fullgraph=True)


def exported(module):
    return torch.export.export(module, inputs(6), dynamic_shapes=(OPEN, OPEN)).module()


def exported_to_onnx(module):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    names = ["x", "padding"]
    program = torch.onnx.export(module, inputs(6), input_names=names, dynamic_shapes=(OPEN, OPEN), verbose=False)
    session = runtime.InferenceSession(program.model_proto.SerializeToString())

    def run(*tensors):
        arguments = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return torch.from_numpy(session.run(None, arguments)[0])

    return run


def transformed(module):
    def run(x, padding):
        return torch.func.vmap(lambda x, padding: module(x[None], padding[None])[0])(x, padding)

    return run


def in_half_precision(module, dtype):
    half = copy.deepcopy(module).to(dtype)
    return lambda x, padding: half(x.to(dtype), padding).float()


CHECKS = {
    "compile": (compiled, 1e-5),
    "export": (exported, 1e-5),
    "ONNX": (exported_to_onnx, 1e-4),
    "func": (transformed, 1e-5),
    "fp16": (functools.partial(in_half_precision, dtype=torch.float16), 0.02),
    "bf16": (functools.partial(in_half_precision, dtype=torch.bfloat16), 0.1),
}
"""Name -> what makes a function of a module, and the tolerance of its results."""


EXAMPLES = ("softmax", "relu")
"""Mechanisms for which the fast tests do what takes seconds for each; the slow ones do it for all."""

UNTRACED = ("func", "fp16", "bf16")
FAST = {("softmax", "compile"), *((name, "export") for name in EXAMPLES)}
"""What the fast tests trace; test_compilation.py compiles "relu" as well."""


def slow_unless(is_fast, *values):
    return pytest.param(*values, marks=[] if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "check"),
    [slow_unless(check in UNTRACED or (name, check) in FAST, name, check) for name in MECHANISMS for check in CHECKS],
)
def test_results_are_the_same(name, check):
    convert, tolerance = CHECKS[check]
    module = Attention(name).eval()
    function = convert(module)
    with torch.no_grad():
        for length in (6, 100, 600):
            expected = module(*inputs(length))
            found = function(*inputs(length))
            torch.testing.assert_close(found, expected, atol=tolerance * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize("name", [slow_unless(name in EXAMPLES, name) for name in MECHANISMS])
def test_derivatives_of_transforms_are_those_of_autograd(name):
    module = Attention(name).eval().double()
    x, padding = inputs(520, torch.float64)

    def loss(x):
        return module(x, padding).square().sum()

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    scale = expected.abs().max().item()
    torch.testing.assert_close(torch.func.grad(loss)(x), expected, atol=1e-6 * scale, rtol=0)
    directional = (expected * x.cos()).sum()
    torch.testing.assert_close(torch.func.jvp(loss, (x,), (x.cos(),))[1], directional, atol=1e-5 * scale, rtol=1e-6)
