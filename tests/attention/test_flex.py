"""ReLU attention by FlexAttention, which benchmarks/kernel_speed.py times the fused kernels against."""

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("causal", [False, True])
def test_flex_attention_computes_relu_attention(causal, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # the same result, faster to test
    spec = importlib.util.spec_from_file_location("kernel_speed", BENCHMARKS / "kernel_speed.py")
    kernel_speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel_speed)
    sys.modules.pop("timing", None)
    mask, generator = AttentionMask(is_causal=causal), torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 20, 16, generator=generator).to(kernel_speed.device()) for _ in range(3))
    by_flex = kernel_speed.flex(Namespace(heads=2, head_dim=16, causal=causal), mask, 20)(q, k, v)
    expected = MECHANISMS["relu"](2, 16).eval()(q, k, v, mask).output
    torch.testing.assert_close(by_flex, expected, rtol=1e-4, atol=1e-5)
