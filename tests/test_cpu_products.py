"""Which backend multiplies matrices on which CPU. The CPUs are invented: what they can do is replaced."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relumt import cpu_products
from relumt.cpu_products import TOLERANCE, has_fast_bf16, largest_product_error, select_fp32_backend

SKYLAKE, ZEN4 = {"avx512_f": True}, {"avx512_f": True, "avx512_bf16": True}
SAPPHIRE_RAPIDS = ZEN4 | {"amx_tile": True, "amx_bf16": True}
AVX2 = {"avx2": True, "avx512_f": False}


@pytest.fixture(autouse=True)
def default_backend(monkeypatch):
    """PyTorch's default, which is restored after the test, on a machine without a GPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def cpu(monkeypatch):
    """Replace the capabilities of the CPU."""
    return lambda capabilities: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize(
    ("capabilities", "backend", "setting"),
    [
        (SKYLAKE, "onednn", "medium"),
        (ZEN4, "onednn", "medium"),
        (SAPPHIRE_RAPIDS, "default", "highest"),
        (SKYLAKE | {"amx_tile": True}, "default", "highest"),
        (AVX2, "default", "highest"),
        ({}, "default", "highest"),
    ],
)
def test_onednn_is_selected_with_avx512_and_without_amx(cpu, monkeypatch, capabilities, backend, setting):
    cpu(capabilities)
    monkeypatch.setattr(cpu_products, "largest_product_error", lambda: 3e-7)
    for _ in range(2):  # the second call finds what the first has set
        assert select_fp32_backend() == backend
        assert torch.get_float32_matmul_precision() == setting


@pytest.mark.parametrize("error", [1.1e-6, 2e-3, float("inf"), float("nan")])
def test_an_inaccurate_backend_is_not_used(cpu, monkeypatch, error):
    cpu(ZEN4)
    monkeypatch.setattr(cpu_products, "largest_product_error", lambda: error)
    assert select_fp32_backend() == "default"
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_accuracy_is_that_of_the_backend_and_not_of_the_default(cpu, monkeypatch):
    settings = []
    cpu(ZEN4)
    monkeypatch.setattr(
        cpu_products, "largest_product_error", lambda: settings.append(torch.get_float32_matmul_precision()) or 0.0
    )
    select_fp32_backend()
    assert settings == ["medium"]


@pytest.mark.parametrize("setting", ["high", "medium"])
def test_the_users_own_setting_stays(cpu, setting):
    cpu(SAPPHIRE_RAPIDS)
    torch.set_float32_matmul_precision(setting)
    select_fp32_backend()
    assert torch.get_float32_matmul_precision() == setting


def test_a_machine_with_a_gpu_keeps_the_default(cpu, monkeypatch):
    cpu(ZEN4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert select_fp32_backend() == "default"


def test_products_of_this_cpu_are_accurate_and_leave_the_random_state_alone():
    state = torch.random.get_rng_state()
    assert largest_product_error() == largest_product_error() <= TOLERANCE
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("name", ["linear", "mm", "bmm"])
def test_every_kind_of_product_is_checked(monkeypatch, name):
    """A product whose operands were rounded to bf16, as with AMX, is noticed whichever kind it is."""
    if name == "linear":
        owner, attribute = torch.nn.functional, "linear"
    else:
        owner, attribute = torch.Tensor, "__matmul__"
    exact = getattr(owner, attribute)

    def rounded(x, y, *bias):
        is_meant = x.dtype == torch.float32 and (name == "linear" or x.dim() == {"mm": 2, "bmm": 3}[name])
        return exact(x.bfloat16().float(), y.bfloat16().float(), *bias) if is_meant else exact(x, y, *bias)

    monkeypatch.setattr(owner, attribute, rounded)
    assert 1e-4 < largest_product_error() < 1e-2


def test_a_product_that_is_not_a_number_is_noticed(monkeypatch):
    exact = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda x, y: exact(x, y) * (1 if x.dtype == torch.float64 else torch.nan)
    )
    assert not largest_product_error() <= TOLERANCE


@pytest.mark.parametrize(
    ("capabilities", "is_fast"),
    [(ZEN4, True), (SAPPHIRE_RAPIDS, True), ({"amx_bf16": True}, True), (SKYLAKE, False), (AVX2, False), ({}, False)],
)
def test_bf16_is_fast_with_its_own_instructions(cpu, capabilities, is_fast):
    cpu(capabilities)
    assert has_fast_bf16() == is_fast


@pytest.mark.parametrize(
    ("imports", "setting"),
    [
        ("import fairseq, relumt", "medium"),
        ("import relumt; relumt.register()", "medium"),
        ("import relumt.attention", "highest"),
    ],
)
def test_the_plugin_selects_the_backend_and_the_attention_package_does_not(imports, setting):
    code = f"""
import torch
torch.cpu.get_capabilities = lambda: {ZEN4}
{imports}
print(torch.get_float32_matmul_precision())
"""
    root = Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == setting
