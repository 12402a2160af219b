"""What the fused kernels are timed against: ReLU attention by FlexAttention's softmax of a logarithm."""

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
def test_it_gives_the_same_values(causal, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # without it, it computes the same, slowly
    spec = importlib.util.spec_from_file_location("benchmark_of_kernels", BENCHMARKS / "kernel_speed.py")
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    sys.modules.pop("timing", None)
    mask, seeded = AttentionMask(None, causal), torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 20, 16, generator=seeded).to(kernels.device()) for _ in range(3))
    by_flex = kernels.flex(Namespace(heads=2, head_dim=16, causal=causal), mask, 20)(q, k, v)
    mixed = MECHANISMS["relu"](2, 16).eval()(q, k, v, mask).output
    torch.testing.assert_close(by_flex, mixed, rtol=1e-4, atol=1e-5)
