"""Which backend multiplies matrices on which CPU. The CPUs are invented: what they can do is replaced."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relumt.plugin import cpu_products
from relumt.plugin.cpu_products import (
    TOLERANCE,
    has_fast_bf16,
    largest_product_error,
    products_of_strided_tensors,
    select_fp32_backend,
)

ROOT = Path(__file__).parents[2]

SKYLAKE, ZEN4 = {"avx512_f": True}, {"avx512_f": True, "avx512_bf16": True}
SAPPHIRE_RAPIDS = ZEN4 | {"amx_tile": True, "amx_bf16": True}
AVX2 = {"avx2": True, "avx512_f": False}


@pytest.fixture(autouse=True)
def default_backend(monkeypatch, restored_fp32_backend):
    """PyTorch's default, on a machine without a GPU."""
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


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


@pytest.mark.parametrize(
    ("owner", "name"), [(torch.nn.functional, "linear"), (torch, "mm"), (torch, "bmm")], ids=["linear", "mm", "bmm"]
)
def test_every_kind_of_product_is_checked(monkeypatch, owner, name):
    """A product whose operands were rounded to bf16, as with AMX, is noticed whichever kind it is."""
    exact = getattr(owner, name)

    def rounded(*operands):
        return exact(*(x.bfloat16().float() if x.dtype == torch.float32 else x for x in operands))

    monkeypatch.setattr(owner, name, rounded)
    assert 1e-4 < largest_product_error() < 1e-2


def test_a_product_that_is_not_a_number_is_noticed(monkeypatch):
    exact = torch.bmm
    nan_in_fp32 = {torch.float32: torch.nan, torch.float64: 1}
    monkeypatch.setattr(torch, "bmm", lambda x, y: exact(x, y) * nan_in_fp32[x.dtype])
    assert not largest_product_error() <= TOLERANCE


def test_a_child_process_can_compute_after_the_choice():
    """OpenMP would hang in a child forked after its parent has computed with several threads."""
    code = f"""
import os, torch
torch.cpu.get_capabilities = lambda: {ZEN4}
torch.set_num_threads(2)
from relumt.plugin.cpu_products import select_fp32_backend
select_fp32_backend()
assert torch.get_num_threads() == 2
if os.fork() == 0:
    x = torch.ones(600, 600)
    os._exit(int((x @ x)[0, 0]) != 600)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120, check=True)


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_products_of_strided_tensors_leave_the_setting_as_it_was(setting):
    torch.set_float32_matmul_precision(setting)
    with pytest.raises(KeyError), products_of_strided_tensors():
        assert torch.get_float32_matmul_precision() == "highest"
        raise KeyError
    assert torch.get_float32_matmul_precision() == setting


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
settings = ["highest"]  # PyTorch's own would select bf16 products on a CPU with AMX
torch.set_float32_matmul_precision = settings.append
torch.get_float32_matmul_precision = lambda: settings[-1]
{imports}
print(torch.get_float32_matmul_precision())
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == setting
