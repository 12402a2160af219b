"""ReLU attention by FlexAttention, which benchmarks/kernel_speed.py times the fused kernels against."""

import functools
import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def kernel_speed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("kernel_speed", BENCHMARKS / "kernel_speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("timing", None)
    return module


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("causal", [False, True])
def test_flex_attention_computes_relu_attention(kernel_speed, causal, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # the same result, faster to test
    mask, generator = AttentionMask(is_causal=causal), torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 20, 16, generator=generator).to(kernel_speed.device()) for _ in range(3))
    by_flex = kernel_speed.flex(Namespace(heads=2, head_dim=16, causal=causal), mask, 20)(q, k, v)
    expected = MECHANISMS["relu"](2, 16).eval()(q, k, v, mask).output
    torch.testing.assert_close(by_flex, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_flex_attention_is_compiled_for_each_length(kernel_speed, monkeypatch):
    """With static shapes, and for more lengths than torch.compile recompiles by default."""
    sizes, compile_with = [], torch.compile

    def record_sizes(graph, inputs):
        sizes.append([size for x in inputs if isinstance(x, torch.Tensor) for size in x.shape])
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(compile_with, backend=record_sizes))
    lengths = range(16, 16 + torch._dynamo.config.recompile_limit + 2)
    for n in lengths:
        attend = kernel_speed.flex(Namespace(heads=2, head_dim=16, causal=False), AttentionMask(), n)
        attend(*(torch.zeros(2, 2, n, 16, device=kernel_speed.device()) for _ in range(3)))
    assert len(sizes) == len(lengths)
    assert all(type(size) is int for found in sizes for size in found)
