"""Pointwise weights on a CPU in blocks: against PyTorch's operators on the whole, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relumt.attention import MECHANISMS, Visible, Want
from relumt.attention.kernels import dispatch, pointwise_blocked
from tests.attention.cases import Case, cases

POINTWISE = sorted(name for name, row in MECHANISMS.items() if row(1, 16).pointwise)
TOLERANCE = 1e-11


@pytest.fixture(params=[8, 60, 1 << 19], ids="pairs={}".format)
def pairs(request, monkeypatch):
    """Blocks of a few queries of one head, of some heads, and of everything; and always blocks."""
    monkeypatch.setattr(pointwise_blocked, "PAIRS", request.param)
    monkeypatch.setattr(dispatch, "LARGE_ON_CPU", 0)
    monkeypatch.setattr(dispatch, "TYPES", (torch.float64,))


def attended(name: str, case: Case, kernels: str, want: Want, dropout: float = 0.0) -> list[Tensor]:
    """What is mixed, the statistics, and the gradients of a sum of both."""
    mechanism = MECHANISMS[name](case.H, case.D, dropout).train()
    inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v)]
    torch.manual_seed(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(dispatch.VARIABLE, kernels)
        found = mechanism(*inputs, case.visible, want)
    outputs = [found.mixed]
    if found.statistics is not None:
        outputs += [found.statistics.total, found.statistics.s_log_s]
    total = sum((x.double() * torch.linspace(-1, 1, x.numel()).double().view_as(x)).sum() for x in outputs)
    return [x.detach().double() for x in (*outputs, *torch.autograd.grad(total, inputs))]


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("want", [Want.NOTHING, Want.STATISTICS], ids=str)
@given(case=cases(longest=9))
def test_values_statistics_and_gradients(name, want, case):
    if case.visible.pairs is not None:
        case = Case(case.q, case.k, case.v, Visible(case.visible.keys, case.visible.causal))
    for ours, theirs in zip(attended(name, case, "auto", want), attended(name, case, "reference", want), strict=True):
        assert (ours - theirs).norm() <= TOLERANCE * (1 + theirs.norm())


@pytest.mark.usefixtures("pairs")
@given(causal=st.booleans(), seed=st.integers(0, 100))
def test_dropout_is_the_same_in_both_directions(causal, seed):
    T, p = 12, 0.3
    seeded = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 2, T, 5, generator=seeded, dtype=torch.float64) for _ in range(2))
    v = torch.eye(T, dtype=torch.float64).repeat(2, 2, 1, 1)  # so that what is mixed are the weights
    visible = Visible(torch.rand(2, T, generator=seeded) > 0.2, causal)
    case = Case(q, k, v, visible)
    mechanism = MECHANISMS["sigmoid"](2, 5)
    whole = mechanism(q, k, v, visible).mixed
    ours = attended("sigmoid", case, "auto", Want.STATISTICS, p)
    kept = (ours[0] != 0).double() / (1 - p)
    doubles = [x.requires_grad_() for x in (q, k, v)]
    scores = mechanism.scores(doubles[0], doubles[1], visible)
    weights = mechanism.weights(scores, visible)
    outputs = [(weights * kept) @ doubles[2], weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)]
    total = sum((x * torch.linspace(-1, 1, x.numel()).double().view_as(x)).sum() for x in outputs)
    theirs = [*outputs, *torch.autograd.grad(total, doubles)]
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= TOLERANCE * (1 + other.norm())
    seen = whole != 0
    assert not seen.any() or (ours[0][seen] == 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast, monkeypatch):
    monkeypatch.setattr(dispatch, "LARGE_ON_CPU", 0)
    q, k, v = (torch.randn(1, 2, 6, 8).to(dtype) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mixed = MECHANISMS["relu"](2, 8)(q, k, v * 1e5 if dtype == torch.bfloat16 else v * 1e4, Visible()).mixed
    assert mixed.dtype == dtype and mixed.isfinite().all()


def test_only_large_weights_on_a_cpu_are_made_in_blocks(monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "auto")
    short, long = torch.randn(1, 1, 511, 4), torch.randn(1, 1, 512, 4)

    def chosen(x: Tensor, visible: Visible = Visible(), weights: bool = False) -> object:  # noqa: B008
        return dispatch.pointwise(x, x, x, visible, weights, False)

    assert chosen(long) is pointwise_blocked.attend
    assert chosen(short) is None and chosen(long.double()) is None and chosen(long, weights=True) is None
    assert chosen(long, Visible(pairs=torch.ones(512, 512, dtype=torch.bool))) is None
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    assert chosen(long) is None


def test_no_tensor_of_all_weights_is_made(monkeypatch):
    monkeypatch.setattr(pointwise_blocked, "PAIRS", 1 << 12)
    x = torch.randn(1, 2, 600, 8, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        MECHANISMS["relu"](2, 8)(x, x, x, Visible()).mixed.sum().backward()
    assert max(kept) <= x.numel()
