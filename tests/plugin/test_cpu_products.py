"""Which backend multiplies matrices on which CPU. The CPUs are invented: what they can do is replaced."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relumt.plugin import cpu_products
from relumt.plugin.cpu_products import (
    CACHES,
    COMPILED_PRODUCTS,
    TOLERANCE,
    has_fast_bf16,
    largest_product_error,
    limit_compiled_products,
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


def is_medium():
    """Return whether the accuracy that is measured is that of the backend, not of the default."""
    return torch.get_float32_matmul_precision() == "medium"


@pytest.mark.parametrize(
    ("capabilities", "has_gpu", "error", "setting"),
    [
        (SKYLAKE, False, 3e-7, "medium"),
        (ZEN4, False, 3e-7, "medium"),
        (ZEN4, True, 3e-7, "highest"),
        *((ZEN4, False, error, "highest") for error in (1.1e-6, 2e-3, torch.inf, torch.nan)),
        *((other, False, 3e-7, "highest") for other in (SAPPHIRE_RAPIDS, SKYLAKE | {"amx_tile": True}, AVX2, {})),
    ],
)
def test_onednn_is_selected_with_avx512_and_without_amx(cpu, monkeypatch, capabilities, has_gpu, error, setting):
    cpu(capabilities)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(cpu_products, "largest_product_error", lambda: error if is_medium() else torch.nan)
    for _ in range(2):  # the second call finds what the first has set
        assert select_fp32_backend() == ("onednn" if setting == "medium" else "default")
        assert torch.get_float32_matmul_precision() == setting
    torch.set_float32_matmul_precision("high")
    select_fp32_backend()
    assert torch.get_float32_matmul_precision() == "high", "the user's own setting stays"


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


def test_the_number_of_compiled_products_can_be_chosen(monkeypatch):
    monkeypatch.setattr(os, "environ", {CACHES[0]: "7"})
    limit_compiled_products()
    assert os.environ == {CACHES[0]: "7", CACHES[1]: str(COMPILED_PRODUCTS)}


PROCESS = f"""
import os, torch
torch.cpu.get_capabilities = lambda: {ZEN4}
torch.set_num_threads(2)
from relumt.plugin.cpu_products import select_fp32_backend
select_fp32_backend()
assert torch.get_num_threads() == 2
if os.fork() == 0:
    x = torch.ones(600, 600)
    os._exit(int((x @ x)[0, 0]) != 600)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "a child cannot compute"
"""


def test_children_can_compute():
    """OpenMP would hang in a child forked after its parent has computed with several threads."""
    subprocess.run([sys.executable, "-c", PROCESS], cwd=ROOT, timeout=120, check=True)
