"""The Inhibitor's Triton kernels against the equation in float64: on a GPU, or interpreted on the CPU, in small."""

import pytest
import torch

from relumt.attention import MECHANISMS, Visible
from relumt.attention.kernels import dispatch, inhibitor_naive
from tests.attention.test_pointwise import DEVICE, compare, problem, with_gradients

inhibitor_triton = pytest.importorskip("relumt.attention.kernels.inhibitor_triton")
TOLERANCE = 1e-5


def both(shape, causal, dropout=0.0, dropped=None):
    q, k, v, keys = problem(*shape)
    shift = torch.linspace(0.2, 0.6, shape[1], device=DEVICE)[:, None, None].requires_grad_()
    inputs = (q, k, v, shift)
    gamma = shape[-1]
    mixed = inhibitor_triton.inhibit(q, k, v, gamma, shift, keys, causal, dropout)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = inhibitor_naive.inhibit(*doubles[:3], gamma, doubles[3], Visible(keys, causal), dropped)
    weights = [torch.randn(mixed.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)]
    return with_gradients([mixed], inputs, weights), with_gradients([exact], doubles, weights)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 35, 35, 8), (1, 1, 5, 40, 24), (2, 1, 1, 5, 3)], ids=str)
def test_values_and_gradients(shape, causal):
    ours, theirs = both(shape, causal)
    assert theirs[0].ne(0).double().mean() > 0.1
    compare(ours, theirs, TOLERANCE)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_stays_nan(which):
    inputs = [torch.randn(1, 1, 4, 3, device=DEVICE) for _ in range(3)]
    inputs[which][0, 0, 1, 2] = torch.nan
    mixed = inhibitor_triton.inhibit(*inputs, 1.0, torch.zeros(1, 1, 1, device=DEVICE), None, False, 0.0)
    naive = inhibitor_naive.inhibit(*inputs, 1.0, torch.zeros(1, 1, 1, device=DEVICE), Visible(None, False), None)
    assert torch.equal(mixed.isnan(), naive.isnan()) and naive.isnan().any()


def test_ties_have_half_the_gradient_as_elsewhere():
    q = torch.zeros(1, 1, 2, 3, device=DEVICE).requires_grad_()
    k, v = torch.zeros(2, 1, 1, 4, 3, device=DEVICE)
    v = v.clone().requires_grad_()
    mixed = inhibitor_triton.inhibit(q, k, v, 1.0, torch.zeros(1, 1, 1, device=DEVICE), None, False, 0.0)
    mixed.sum().backward()
    assert mixed.eq(0).all() and v.grad.eq(2 * 0.5).all()


def test_dropout_drops_the_same_pairs_in_every_direction(monkeypatch):
    shape = (1, 1, 20, 20, 4)
    kept = {}

    def of_pairs(seed):
        """Which pairs are kept, from values that say which key they are of: q = k, so that z = 0."""
        zeros = torch.zeros(1, 1, 20, 4, device=DEVICE)
        torch.manual_seed(seed)
        one_hot = torch.eye(20, device=DEVICE)[None, None]
        return inhibitor_triton.inhibit(
            zeros, zeros, one_hot, 1.0, torch.zeros(1, 1, 1, device=DEVICE), None, False, 0.3
        )

    kept = of_pairs(3)
    assert set(kept.unique().tolist()) == {0.0, 1.0} and 0.6 < kept.mean() < 0.8
    torch.manual_seed(3)
    ours, theirs = both(shape, False, 0.3, kept.eq(0))
    compare(ours, theirs, TOLERANCE)


@pytest.mark.parametrize("name", ["inhibitor", "inhibitor_signed"])
def test_it_serves_the_mechanism(name, monkeypatch):
    q, k, v, keys = problem(2, 2, 9, 9, 8, grad=False)
    visible = Visible(keys, True)
    mechanism = MECHANISMS[name](2, 8, implementation="fused").to(DEVICE)
    served = []
    inhibit = dispatch.inhibit
    monkeypatch.setattr(dispatch, "inhibit", lambda *a: served.append(1) or inhibit(*a))
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    fused = mechanism(q / 4, k / 4, v, visible).mixed
    assert served
    naive = MECHANISMS[name](2, 8, implementation="naive").to(DEVICE)
    compare([fused], [naive(q.double() / 4, k.double() / 4, v.double(), visible).mixed], TOLERANCE)
