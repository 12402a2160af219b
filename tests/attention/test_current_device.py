"""Kernels are launched with the device of their tensors as the current one."""

from contextlib import contextmanager

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask

pytest.importorskip("triton")
from relumt.attention.kernels import inhibitor_triton, pointwise_triton
from relumt.attention.kernels.pointwise_params import PointwiseParams


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

    split = module.triton.cdiv  # computes the grid of every launch
    launches = []
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(module.triton, "cdiv", lambda *sizes: launches.append(bool(inside)) or split(*sizes))
    q, k, v = (torch.randn(1, 2, 3, 8, requires_grad=True) for _ in range(3))
    output = MECHANISMS[name](2, 8)(q, k, v, AttentionMask()).output
    assert selected == [q.shape]
    output.sum().backward()
    assert selected == [q.shape, output.shape]
    assert launches and all(launches)


def test_a_backward_pass_without_gradients_gives_zeros():
    q, k, v = (torch.randn(1, 2, 3, 8, requires_grad=True) for _ in range(3))
    params = PointwiseParams("relu", torch.ones(1, 1))
    output = pointwise_triton.attend(q, k, v, params, None, False, 0.0, False, torch.float32)[0]
    with torch.no_grad():  # as the autograd engine calls it
        gradients = output.grad_fn.apply(None, None, None)
    assert all(x.eq(0).all() for x in gradients[:3])
