"""Pointwise weights on a CPU in blocks: against PyTorch's operators on the whole, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch, pointwise_blocked
from relumt.attention.relu import ReLUAttention
from tests.attention.cases import Case, cases, in_blocks

POINTWISE = sorted(name for name, row in MECHANISMS.items() if row(1, 16).pointwise)
TOLERANCE = 1e-11


BLOCKS = pytest.mark.parametrize("pairs", [8, 60, 1 << 19])
"""Blocks of a few queries of one head, of some heads, and of everything."""


def result(name: str, case: Case, kernels: str, need: Need, dropout: float = 0.0) -> list[Tensor]:
    """What is mixed, the statistics, and the gradients of a sum of both."""
    mechanism = MECHANISMS[name](case.H, case.D, dropout).train()
    inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v)]
    torch.manual_seed(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(dispatch.VARIABLE, kernels)
        found = mechanism(*inputs, case.mask, need)
    outputs = [found.output]
    if found.row_stats is not None:
        outputs += [found.row_stats.weight_sum, found.row_stats.weight_log_weight_sum]
    total = sum((x.double() * torch.linspace(-1, 1, x.numel()).double().view_as(x)).sum() for x in outputs)
    return [x.detach().double() for x in (*outputs, *torch.autograd.grad(total, inputs))]


@BLOCKS
@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS], ids=str)
@given(case=cases(longest=9))
def test_values_statistics_and_gradients(pairs, name, need, case):
    if case.mask.attn_mask is not None:
        case = Case(case.q, case.k, case.v, AttentionMask(case.mask.key_mask, case.mask.is_causal))
    with in_blocks(pairs) as served:
        blocked = result(name, case, "auto", need)
    assert served
    plain = result(name, case, "reference", need)
    for ours, theirs in zip(blocked, plain, strict=True):
        assert (ours - theirs).norm() <= TOLERANCE * (1 + theirs.norm())


@BLOCKS
@given(causal=st.booleans(), seed=st.integers(0, 100))
def test_dropout_is_the_same_in_both_directions(pairs, causal, seed):
    T, p = 12, 0.3
    seeded = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 2, T, 5, generator=seeded, dtype=torch.float64) for _ in range(2))
    v = torch.eye(T, dtype=torch.float64).repeat(2, 2, 1, 1)  # so that what is mixed are the weights
    mask = AttentionMask(torch.rand(2, T, generator=seeded) > 0.2, causal)
    case = Case(q, k, v, mask)
    mechanism = MECHANISMS["sigmoid"](2, 5)
    with in_blocks(pairs) as served:
        ours = result("sigmoid", case, "auto", Need.ROW_STATS, p)
    assert served
    kept = (ours[0] != 0).double() / (1 - p)
    doubles = [x.requires_grad_() for x in (q, k, v)]
    weights = mechanism.weights(mechanism.scores(doubles[0], doubles[1], mask), mask)
    outputs = [(weights * kept) @ doubles[2], weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)]
    total = sum((x * torch.linspace(-1, 1, x.numel()).double().view_as(x)).sum() for x in outputs)
    theirs = [*outputs, *torch.autograd.grad(total, doubles)]
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= TOLERANCE * (1 + other.norm())


@BLOCKS
def test_dropout_drops_its_share_anew_in_every_block_and_call(pairs):
    T, p = 40, 0.3
    x, v = torch.zeros(2, 2, T, 3, dtype=torch.float64), torch.eye(T, dtype=torch.float64).repeat(2, 2, 1, 1)
    mechanism = MECHANISMS["sigmoid"](2, 3, p).train()
    with in_blocks(pairs) as served:
        first, second = (mechanism(x, x, v, AttentionMask()).output != 0 for _ in range(2))
        assert not MECHANISMS["sigmoid"](2, 3, 1.0).train()(x, x, v, AttentionMask()).output.any()
    assert len(served) == 3
    assert 0.65 < first.double().mean() < 0.75
    rows = torch.cat([first, second]).flatten(0, 2)
    assert len(rows.unique(dim=0)) == len(rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast, monkeypatch):
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 0)
    seeded = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 2, 40, 8, generator=seeded).to(dtype).requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mixed = MECHANISMS["relu"](2, 8)(*inputs, AttentionMask()).output
        gradients = torch.autograd.grad(mixed.float().sum(), inputs)  # in the block, as some do
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = MECHANISMS["relu"](2, 8)(*doubles, AttentionMask()).output
    rounding = torch.finfo(dtype).eps / 2
    assert mixed.dtype == dtype
    for ours, theirs in zip((mixed, *gradients), (exact, *torch.autograd.grad(exact.sum(), doubles)), strict=True):
        assert (ours.double() - theirs).norm() <= rounding * theirs.norm()


def test_half_precision_is_held_at_its_largest(monkeypatch):
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 0)
    x, v = torch.ones(1, 1, 9, 4, dtype=torch.float16), torch.full((1, 1, 9, 4), 6e4, dtype=torch.float16)
    assert MECHANISMS["relu"](1, 4)(x, x, v, AttentionMask()).output.eq(torch.finfo(torch.float16).max).all()


@pytest.mark.parametrize(
    ("q", "k", "keys"), [((1, 2), (3, 2), None), ((1, 1), (1, 2), None), ((3, 2), (1, 2), None), ((3, 2), (3, 2), 1)]
)
def test_what_is_to_be_broadcast_goes_to_the_reference(q, k, keys, monkeypatch):
    q, k = torch.randn(*q, 512, 4), torch.randn(*k, 512, 4)
    mask = AttentionMask(None if keys is None else torch.arange(512)[None] < 500)
    mixed = MECHANISMS["relu"](2, 4)(q, k, k, mask).output
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    assert torch.equal(mixed, MECHANISMS["relu"](2, 4)(q, k, k, mask).output)


def test_a_variant_with_weights_of_its_own_goes_to_the_reference(monkeypatch):
    class Squared(ReLUAttention):
        def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
            return super().weights(scores, mask).square()

    x = torch.randn(1, 1, 512, 4)
    mixed = Squared(1, 4)(x, x, x, AttentionMask()).output
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    assert torch.equal(mixed, Squared(1, 4)(x, x, x, AttentionMask()).output)


def test_second_derivatives_are_refused_and_not_left_out():
    x = torch.randn(1, 1, 6, 4, dtype=torch.float64, requires_grad=True)
    with in_blocks():
        mixed = MECHANISMS["relu"](1, 4)(x, x, x, AttentionMask()).output
    with pytest.raises(RuntimeError, match=r"no second derivatives .*; set RELUMT_KERNELS=reference"):
        torch.autograd.grad(mixed.sum(), x, create_graph=True)


def test_a_mask_that_is_changed_before_the_backward_pass_is_said():
    x = torch.randn(1, 1, 6, 4, dtype=torch.float64, requires_grad=True)
    keys = torch.ones(1, 6, dtype=torch.bool)
    with in_blocks():
        mixed = MECHANISMS["relu"](1, 4)(x, x, x, AttentionMask(keys)).output
    keys[0, 3] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mixed.sum().backward()


def test_only_large_weights_on_a_cpu_are_made_in_blocks(monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "auto")
    short, long = torch.randn(1, 1, 511, 4), torch.randn(1, 1, 512, 4)

    def chosen(x: Tensor, mask: AttentionMask = AttentionMask(), weights: bool = False) -> object:  # noqa: B008
        return dispatch.select_pointwise_kernel(x, x, x, mask, weights, False)

    assert chosen(long) is pointwise_blocked.attend
    assert chosen(short) is None and chosen(long.double()) is None and chosen(long, weights=True) is None
    assert chosen(long, AttentionMask(attn_mask=torch.ones(512, 512, dtype=torch.bool))) is None
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    assert chosen(long) is None


def test_no_tensor_of_all_weights_is_made(monkeypatch):
    monkeypatch.setattr(pointwise_blocked, "BLOCK_WEIGHTS", 1 << 12)

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for x in made if isinstance(made, (tuple, list)) else [made]:
                self.numbers = max(self.numbers, x.numel() if isinstance(x, Tensor) else 0)
            return made

    x = torch.randn(1, 2, 600, 8, requires_grad=True)
    with Largest() as largest:
        MECHANISMS["relu"](2, 8)(x, x, x, AttentionMask(is_causal=True)).output.sum().backward()
    assert largest.numbers <= x.numel()
