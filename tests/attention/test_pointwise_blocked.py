"""Pointwise attention in blocks on a CPU, against PyTorch operators on whole tensors, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch, pointwise_blocked
from relumt.attention.kernels.key_bounds import key_bounds
from relumt.process import KERNELS_VARIABLE
from tests.attention.cases import Case, cases, for_each_mechanism, in_blocks

POINTWISE = sorted(name for name, spec in MECHANISMS.items() if spec(1, 16).pointwise_activation)
TOLERANCE = 1e-11


BLOCKS = pytest.mark.parametrize("pairs", [8, 60, 1 << 19])
"""Blocks of a few queries of one head, of several heads, and of everything."""


def weighted_sum(outputs: list[Tensor]) -> Tensor:
    """Return the sum of all elements, with weights of their own in each tensor."""
    weights = [torch.linspace(-1, 1 + i, x.numel()).double().view_as(x) for i, x in enumerate(outputs)]
    return sum((x.double() * weight).sum() for x, weight in zip(outputs, weights, strict=True))


def run(name: str, case: Case, kernels: str, need: Need, dropout: float = 0.0) -> list[Tensor]:
    """Return the output, the row stats, and the gradients of a weighted sum of both."""
    mechanism = MECHANISMS[name](case.H, case.D, dropout).train()
    inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v)]
    torch.manual_seed(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(KERNELS_VARIABLE, kernels)
        result = mechanism(*inputs, case.mask, need)
    outputs = [result.output]
    if result.row_stats is not None:
        outputs += [result.row_stats.weight_sum, result.row_stats.weight_log_weight_sum]
    total = weighted_sum(outputs)
    return [x.detach().double() for x in (*outputs, *torch.autograd.grad(total, inputs))]


@pytest.mark.parametrize(
    ("name", "pairs", "need"),
    [
        *((name, 60, Need.ROW_STATS) for name in POINTWISE),
        *((name, 8, need) for name in ("relu", "sigmoid") for need in (Need.NOTHING, Need.ROW_STATS)),
        ("relu", 1 << 19, Need.ROW_STATS),
    ],
)
@for_each_mechanism
@given(case=cases(longest=9))
def test_outputs_row_stats_and_gradients(name, pairs, need, case):
    if case.mask.attn_mask is not None:
        case = Case(case.q, case.k, case.v, AttentionMask(case.mask.key_mask, case.mask.is_causal))
    with in_blocks(pairs) as calls:
        blocked = run(name, case, "auto", need)
    assert calls
    reference = run(name, case, "reference", need)
    for ours, theirs in zip(blocked, reference, strict=True):
        assert (ours - theirs).norm() <= TOLERANCE * (1 + theirs.norm())


@BLOCKS
@settings(max_examples=4)
@given(causal=st.booleans(), seed=st.integers(0, 100))
def test_dropout_is_the_same_in_both_directions(pairs, causal, seed):
    T, p = 12, 0.25
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 2, T, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    v = torch.eye(T, dtype=torch.float64).repeat(2, 2, 1, 1)  # so that the output is the weights
    mask = AttentionMask(torch.rand(2, T, generator=generator) > 0.2, causal)
    case = Case(q, k, v, mask)
    mechanism = MECHANISMS["sigmoid"](2, 5)
    with in_blocks(pairs) as calls:
        actual = run("sigmoid", case, "auto", Need.ROW_STATS, p)
    assert calls
    kept = (actual[0] != 0).double() / (1 - p)
    doubles = [x.requires_grad_() for x in (q, k, v)]
    weights = mechanism.weights(mechanism.scores(doubles[0], doubles[1], mask), mask)
    outputs = [(weights * kept) @ doubles[2], weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)]
    total = weighted_sum(outputs)
    expected = [*outputs, *torch.autograd.grad(total, doubles)]
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours - theirs).norm() <= TOLERANCE * (1 + theirs.norm())


@BLOCKS
def test_dropout_differs_between_blocks_and_calls(pairs):
    T, p = 40, 0.3
    x, v = torch.zeros(2, 2, T, 3, dtype=torch.float64), torch.eye(T, dtype=torch.float64).repeat(2, 2, 1, 1)
    mechanism = MECHANISMS["sigmoid"](2, 3, p).train()
    with in_blocks(pairs) as calls:
        first, second = (mechanism(x, x, v, AttentionMask()).output != 0 for _ in range(2))
        assert not MECHANISMS["sigmoid"](2, 3, 1.0).train()(x, x, v, AttentionMask()).output.any()
    assert len(calls) == 3
    assert 0.65 < first.double().mean() < 0.75
    rows = torch.cat([first, second]).flatten(0, 2)
    assert len(rows.unique(dim=0)) == len(rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast, monkeypatch):
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 0)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 2, 40, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = MECHANISMS["relu"](2, 8)(*inputs, AttentionMask()).output
        gradients = torch.autograd.grad(output.float().sum(), inputs)  # inside the block, as in some loops
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = MECHANISMS["relu"](2, 8)(*doubles, AttentionMask()).output
    rounding = torch.finfo(dtype).eps / 2
    assert output.dtype == dtype
    for ours, theirs in zip((output, *gradients), (exact, *torch.autograd.grad(exact.sum(), doubles)), strict=True):
        assert (ours.double() - theirs).norm() <= rounding * theirs.norm()


def test_second_derivatives_are_refused():
    x = torch.randn(1, 1, 6, 4, dtype=torch.float64, requires_grad=True)
    with in_blocks():
        output = MECHANISMS["relu"](1, 4)(x, x, x, AttentionMask()).output
    with pytest.raises(RuntimeError, match=r"no second derivatives .*; set RELUMT_KERNELS=reference"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


def test_only_large_calls_are_computed_in_blocks(monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "auto")
    short, long = torch.randn(1, 1, 511, 4), torch.randn(1, 1, 512, 4)

    def select(x: Tensor, mask: AttentionMask = AttentionMask(), weights: bool = False) -> object:  # noqa: B008
        return dispatch.select_pointwise_kernel(x, x, x, mask, weights, False)

    assert select(long) is pointwise_blocked.attend
    assert select(short) is None and select(long.double()) is None and select(long, weights=True) is None
    assert select(long, AttentionMask(attn_mask=torch.ones(512, 512, dtype=torch.bool))) is None
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    assert select(long) is None


@pytest.mark.parametrize(("power", "shift"), [(16, 0.0), (32, 0.0), (32, 0.03), (32, 0.05), (32, 1.0)])
def test_high_powers_of_large_scores_are_finite(monkeypatch, power, shift):
    monkeypatch.setenv(KERNELS_VARIABLE, "auto")
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 0)
    x = torch.eye(8).view(1, 1, 8, 8) * 9  # scores of 0 and 28.6
    output = MECHANISMS["relu_l1"](1, 8, power=power, shift=shift)(x, x, x, AttentionMask()).output
    torch.testing.assert_close(output, x)


def test_no_tensor_of_all_weights_is_allocated(monkeypatch):
    monkeypatch.setattr(pointwise_blocked, "BLOCK_WEIGHTS", 1 << 12)

    class LargestTensor(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for x in result if isinstance(result, (tuple, list)) else [result]:
                self.numel = max(self.numel, x.numel() if isinstance(x, Tensor) else 0)
            return result

    x = torch.randn(1, 2, 600, 8, requires_grad=True)
    with LargestTensor() as largest:
        MECHANISMS["relu"](2, 8)(x, x, x, AttentionMask(is_causal=True)).output.sum().backward()
    assert largest.numel <= x.numel()


@pytest.mark.parametrize("num_queries", [300, 1024, 1500])
def test_causal_blocks_leave_out_most_hidden_pairs(num_queries):
    q, k = torch.empty(2, 3, num_queries, 4), torch.empty(2, 3, 1024, 4)
    key_mask = torch.arange(1024)[None] < torch.tensor([[1024], [600]])
    call = pointwise_blocked._Call("relu", torch.ones(1, 1), None, True, 0.0, None)
    computed = torch.zeros(2, 1, num_queries, 1024)
    for block in call.blocks(q, k, key_bounds(key_mask)):
        b, heads, queries = block.queries
        computed[b, 0, queries, block.keys[2]] += torch.ones(3)[heads].sum() / 3
    visible = AttentionMask(key_mask, is_causal=True).to_dense(num_queries, 1024)
    assert computed[visible].eq(1).all() and computed.max() == 1
    assert computed.sum() <= visible.sum() + 2 * 1024 * pointwise_blocked.BLOCK_KEYS / 2
