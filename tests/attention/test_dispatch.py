"""Which GPUs run the Triton kernels, as far as it can be tested without one."""

import pytest
import torch

from relumt.attention.kernels import dispatch

CUDA = torch.device("cuda:0")


@pytest.fixture
def gpu(monkeypatch):
    """Return a function that pretends there is a GPU of a name, a compute capability and perhaps a version of ROCm."""

    def pretend(name, capability, hip=None):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.version, "hip", hip)

    return pretend


@pytest.mark.parametrize(
    ("capability", "is_served"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((12, 0), True)]
)
def test_the_kernels_need_ampere(capability, is_served, gpu):
    gpu("NVIDIA Example", capability)
    reason = dispatch.reason_against_device(CUDA)
    if is_served:
        assert reason == ""
    else:
        assert reason == "NVIDIA Example has compute capability 7.5, and the kernels need 8.0 (Ampere) or later"


@pytest.mark.parametrize("choice", ["auto", "fused"])
def test_amd_gpus_are_used_only_on_demand(choice, gpu, monkeypatch):
    gpu("AMD Instinct MI300X", (9, 4), hip="6.3")
    monkeypatch.setenv("RELUMT_KERNELS", choice)
    reason = dispatch.reason_against_device(CUDA)
    assert (reason == "") == (choice == "fused")
    if choice == "auto":
        assert "AMD Instinct MI300X" in reason and reason.endswith("RELUMT_KERNELS=fused tries them")


def test_numba_serves_the_inhibitor_on_a_cpu_only():
    assert dispatch.fused_inhibitor_without_triton(CUDA) is dispatch.inhibitor_cdist.attend
    assert dispatch.fused_inhibitor_without_triton(torch.device("cpu")) is dispatch.inhibitor_numba.attend
