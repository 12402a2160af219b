"""Kernels are launched with the device of their tensors as the current one."""

from contextlib import contextmanager

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask

pytest.importorskip("triton")
from relumt.attention.kernels import inhibitor_triton, pointwise_triton


@pytest.mark.parametrize(
    ("name", "module"), [("relu", pointwise_triton), ("inhibitor", inhibitor_triton)], ids=["pointwise", "inhibitor"]
)
def test_forward_and_backward_select_the_device_of_their_tensors(name, module, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    selected, inside = [], []

    @contextmanager
    def device_of(tensor):
        selected.append(tuple(tensor.shape))
        inside.append(True)
        yield
        inside.pop()

    key_bytes = module.key_bytes  # makes an argument of every launch
    launches = []
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(module, "key_bytes", lambda mask: launches.append(bool(inside)) or key_bytes(mask))
    q, k, v = (torch.randn(1, 2, 3, 8, requires_grad=True) for _ in range(3))
    output = MECHANISMS[name](2, 8)(q, k, v, AttentionMask()).output
    assert selected == [q.shape]
    output.sum().backward()
    assert selected == [q.shape, output.shape]
    assert launches and all(launches)
