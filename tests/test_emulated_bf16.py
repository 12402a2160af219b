"""benchmarks/emulated_bf16.py against PyTorch's own products of bf16, which are slow here but exist."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.plugin import cpu_products
from relumt.runs import environment

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "emulated_bf16.py"

ULP = 2**-7
"""Largest relative distance between neighboring numbers of bf16."""


@pytest.fixture
def emulation(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("emulated_bf16")


def draw(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).bfloat16()


X, W, BIAS, SUM = draw(70, 50), draw(50, 40), draw(40), draw(70, 40)
Q, K, BATCH_SUM = draw(4, 9, 33), draw(4, 33, 7), draw(4, 9, 7)

PRODUCTS = {
    "mm": lambda: torch.mm(X, W),
    "mm of transposed": lambda: torch.mm(W.T, X.T),
    "mm with out": lambda: torch.mm(X, W, out=torch.empty(0, dtype=torch.bfloat16)),
    "mm into a slice": lambda: torch.mm(X, W, out=torch.zeros(80, 40, dtype=torch.bfloat16)[:70]),
    "addmm": lambda: torch.addmm(SUM, X, W, beta=0.5, alpha=2),
    "addmm of a bias": lambda: torch.addmm(BIAS, X, W),
    "addmm with out": lambda: torch.addmm(SUM, X, W, out=torch.zeros_like(SUM)),
    "addmm in place": lambda: SUM.clone().addmm_(X, W),
    "bmm": lambda: torch.bmm(Q, K),
    "bmm with out": lambda: torch.bmm(Q, K, out=torch.zeros_like(BATCH_SUM)),
    "baddbmm": lambda: torch.baddbmm(BATCH_SUM, Q, K, beta=0.5),
    "baddbmm in place": lambda: BATCH_SUM.clone().baddbmm_(Q, K, alpha=2),
    "linear": lambda: F.linear(X, W.T.contiguous(), BIAS),
    "linear of three dimensions": lambda: F.linear(X.view(7, 10, 50), W.T.contiguous(), BIAS),
    "einsum": lambda: torch.einsum("bij,bjk->bik", Q, K),
    "no rows": lambda: torch.mm(X[:0], W),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_bf16_up_to_one_rounding(emulation, name):
    native = PRODUCTS[name]()
    with emulation.emulated_bf16():
        emulated = PRODUCTS[name]()
    assert emulated.dtype == native.dtype == torch.bfloat16
    torch.testing.assert_close(emulated, native, rtol=ULP, atol=1e-4)
    assert torch.equal(PRODUCTS[name](), native), "PyTorch's own products are not restored"


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.ones(28, 28).tril().bool()}])
def test_fused_attention_is_that_of_bf16_up_to_the_rounding_of_weights(emulation, options):
    """PyTorch's rounds each weight to bf16, the emulation only the result."""

    def attend() -> list[Tensor]:
        q, k, v = (draw(2, 4, 28, 16 + n)[..., :16].requires_grad_() for n in range(3))
        output = F.scaled_dot_product_attention(q, k, v, **options)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), (q, k, v))]

    native = attend()
    with emulation.emulated_bf16():
        emulated = attend()
    for one, other in zip(emulated, native, strict=True):
        assert one.dtype == other.dtype == torch.bfloat16
        assert (one.float() - other.float()).norm() < ULP * other.float().norm()


def test_the_cpu_counts_as_fast_and_the_record_says_why(emulation, monkeypatch):
    monkeypatch.setattr(environment, "find_device", environment.find_device)  # restores it after the test
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = cpu_products.has_fast_bf16()
    with emulation.emulated_bf16():
        emulation.name_device()
        device = environment.find_device("bf16")
        assert device.precision == "bf16" and device.name.endswith(", emulated bf16")
        assert "emulated" not in environment.find_device("fp32").name
    assert cpu_products.has_fast_bf16() == before


def test_other_programs_run_in_a_plain_python():
    code = "import sys; print(sys.flags.safe_path, sys.argv, 'torch' in sys.modules)"
    command = [sys.executable, str(SCRIPT), "-P", "-c", code, "-m", "x"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "True ['-c', '-m', 'x'] False\n"
