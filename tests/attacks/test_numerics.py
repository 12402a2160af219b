"""Every mechanism and every implementation that serves a CPU, against the oracle in float64.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import pytest
import torch
from torch import Tensor

from relumt.attention import MECHANISMS, AttentionMask, Mechanism, Need
from relumt.attention.kernels import dispatch, pointwise_blocked
from relumt.process import KERNELS_VARIABLE
from tests.attacks.numeric_cases import NumericCase, draw_case, largest
from tests.attention.conftest import bfloat16  # noqa: F401 (a fixture)

FUSED_SOFTMAX = ("softmax", "ssmax")
GRADIENT_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 2**-6}
"""Relative to Σ|g·d|, the sum of what a directional derivative adds up: mostly the error of the finite difference in
float64, of sums in float32 whose terms cancel, and of a gradient that is rounded to bfloat16."""

STEP = 1e-6
"""Of finite differences in float64. Their rounding error is about 1e-10; a kink within a step adds about STEP."""


def implementations(case: NumericCase, is_slow: bool) -> Iterator[tuple[str, Mechanism, Need]]:
    """Yield all ways in which a CPU may compute a case: name of the kernels, mechanism, and what the caller needs."""
    _, H, _, D = case.q.shape
    spec = MECHANISMS[case.name]
    choices = [get_args(option.type) for _, option in spec.flags() if option.name == "implementation"]
    if choices:
        for one in choices[0]:
            yield "reference", spec(H, D, implementation=one), Need.NOTHING
        return
    mechanism = spec(H, D)
    for need in (Need.NOTHING, Need.ROW_STATS | Need.WEIGHTS):
        yield "reference", mechanism, need
    if case.name in FUSED_SOFTMAX:
        yield "auto", mechanism, Need.NOTHING
    if mechanism.pointwise_activation:
        yield "auto", mechanism, Need.NOTHING
        yield "auto", mechanism, Need.ROW_STATS
        if is_slow:
            yield "fused", mechanism, Need.ROW_STATS


@contextmanager
def kernels(choice: str) -> Iterator[None]:
    """Set RELUMT_KERNELS; "auto" computes pointwise attention in small blocks, and softmax fused, whatever the size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(KERNELS_VARIABLE, choice)
        patched.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 1)
        if choice == "auto":
            patched.setattr(dispatch, "MAX_EXPLICIT_SOFTMAX_WEIGHTS", 0)
        patched.setattr(pointwise_blocked, "BLOCK_WEIGHTS", 64)
        yield


def check_case(case: NumericCase, is_slow: bool) -> int:
    """Compare all implementations with the oracle; return how many there are."""
    expected, tolerance, count = case.exact(), case.tolerance(), 0
    if case.q.dtype != torch.float64 and largest(expected) > torch.finfo(torch.float32).max:
        return 0  # the square of huge scores: float32, in which attention computes, cannot hold it
    for choice, mechanism, need in implementations(case, is_slow):
        found = f"{case}; {choice} kernels, {mechanism.__class__.__name__}, {need}"
        q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))
        with kernels(choice):
            result = mechanism(q, k, v, case.mask, need)
            difference = (result.output.double() - expected).abs()
            assert result.output.isfinite().all(), f"not finite: {found}"
            assert (difference <= tolerance).all(), f"differs by {difference.max()} > {tolerance}: {found}"
            check_statistics(case, result.weights, result.row_stats, found)
            cotangent = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view_as(expected)
            gradients = torch.autograd.grad((result.output.double() * cotangent).sum(), (q, k, v))
        # PyTorch's fused softmax rounds scores differently in its backward pass: exp(1e34·ε) is infinite.
        if not (case.kind == "huge scores" and case.name in FUSED_SOFTMAX and choice == "auto"):
            check_gradients(case, cotangent, gradients, found)
        count += 1
    return count


def check_statistics(case: NumericCase, weights, row_stats, found: str) -> None:
    """Check that hidden keys have no weight, and that statistics are finite and 0 for rows without visible keys."""
    if weights is not None:
        assert weights.isfinite().all() and not weights.masked_select(~case.visible).any(), f"weights: {found}"
    if row_stats is not None:
        sees_nothing = ~case.visible.any(-1).expand_as(row_stats.weight_sum)
        for value in (row_stats.weight_sum, row_stats.entropy, row_stats.log_weight_sum):
            assert value.isfinite().all() and not value[sees_nothing].any(), f"statistics: {found}"


def check_gradients(case: NumericCase, cotangent: Tensor, gradients: tuple[Tensor, ...], found: str) -> None:
    """Compare a directional derivative with the oracle's; the gradient must be finite, and 0 at padding."""
    assert all(gradient.isfinite().all() for gradient in gradients), f"gradient is not finite: {found}"
    if case.mask.key_mask is not None:
        is_padding = ~case.mask.key_mask[:, None, :, None]
        for gradient in gradients[1:]:
            assert not gradient.masked_select(is_padding).any(), f"padding has a gradient: {found}"
    if case.kind != "ordinary":
        return
    inputs = [x.double().nan_to_num(0, 0, 0) for x in (case.q, case.k, case.v)]
    directions = [torch.linspace(-1, 1, x.numel(), dtype=torch.float64).cos().view_as(x) for x in inputs]
    ahead, behind = (
        case.exact(*(x + sign * STEP * d for x, d in zip(inputs, directions, strict=True))) for sign in (1, -1)
    )
    expected = ((ahead - behind) * cotangent).sum() / (2 * STEP)
    products = [gradient.double() * d for gradient, d in zip(gradients, directions, strict=True)]
    difference = abs(sum(x.sum() for x in products) - expected)
    size = sum(x.abs().sum() for x in products)
    limit = GRADIENT_TOLERANCE[case.q.dtype] * (size + 1e-2)
    assert difference <= limit, f"gradient differs by {difference} > {limit}: {found}"


@pytest.mark.parametrize("first", [*range(0, 192, 32), pytest.param(192, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("bfloat16")  # lets Triton's interpreter compute in this type
def test_random_cases(first):
    """The slow ones are more, and with the kernels that take longer on a CPU."""
    is_slow = first == 192
    count = sum(check_case(draw_case(index), is_slow) for index in range(first, 704 if is_slow else first + 32))
    assert count > 32


every_mechanism = pytest.mark.parametrize(
    ("name", "choice"),
    [
        (name, choice)
        for name in sorted(MECHANISMS)
        for choice in ("reference", "auto")
        if choice == "reference" or name in FUSED_SOFTMAX or MECHANISMS[name](1, 4).pointwise_activation
    ],
)
"""By PyTorch operators, and by what `auto` prefers on a CPU, if that differs."""
B, H, T, S, D = 2, 3, 4, 5, 6


def random_qkv() -> list[Tensor]:
    """Return q [B, H, T, D], k and v [B, H, S, D]."""
    seeded = torch.Generator().manual_seed(1)
    return [torch.randn(B, H, length, D, generator=seeded) for length in (T, S, S)]


WRONG_SHAPES = {
    "keys of another batch": ((B, H, T, D), (1, H, S, D), (1, H, S, D)),
    "values of another batch": ((B, H, T, D), (B, H, S, D), (1, H, S, D)),
    "fewer values than keys": ((B, H, T, D), (B, H, S, D), (B, H, S - 1, D)),
    "one key": ((B, H, T, D), (B, H, 1, D), (B, H, S, D)),
    "one head of values": ((B, H, T, D), (B, H, S, D), (B, 1, S, D)),
    "another number of heads": ((B, H + 1, T, D), (B, H + 1, S, D), (B, H + 1, S, D)),
    "another head size": ((B, H, T, D + 1), (B, H, S, D + 1), (B, H, S, D + 1)),
    "queries without heads": ((B, T, D), (B, H, S, D), (B, H, S, D)),
}


each_forward = pytest.mark.parametrize("name", ["relu", "inhibitor"])
"""The two methods that check shapes, `Mechanism.forward` and the Inhibitor's."""


@each_forward
def test_tensors_of_other_shapes_are_refused(name):
    for shapes in WRONG_SHAPES.values():
        with pytest.raises(ValueError) as caught:
            MECHANISMS[name](H, D)(*(torch.randn(shape) for shape in shapes), AttentionMask())
        assert all(str(list(shape)) in str(caught.value) for shape in shapes) and "\n" not in str(caught.value)


WRONG_MASKS = {
    "key_mask": [(B, 1), (1, S), (B, S + 1), (S, B), (B + 1, S), (B, 0)],
    "attn_mask": [(T, 1), (1, S), (T, S + 1), (T + 1, S), (S, T), (T, 0)],
}


@each_forward
@pytest.mark.parametrize("mask", WRONG_MASKS)
def test_masks_are_never_broadcast(name, mask):
    for shape in WRONG_MASKS[mask]:
        wrong = AttentionMask(**{mask: torch.ones(shape, dtype=torch.bool)})
        for need in (Need.NOTHING, Need.ROW_STATS | Need.WEIGHTS):
            with pytest.raises(ValueError, match=f"AttentionMask.{mask} must be"):
                MECHANISMS[name](H, D)(*random_qkv(), wrong, need)


@every_mechanism
def test_padding_that_is_not_finite_changes_no_bit(name, choice):
    """Neither of the output nor of a gradient, with dropout."""
    key_mask = torch.tensor([[True, False, True, True, False], [False, True, True, False, True]])

    def output_and_gradients(value: float) -> list[Tensor]:
        q, k, v = random_qkv()
        k, v = (x.masked_fill(~key_mask[:, None, :, None], value) for x in (k, v))
        inputs = [x.requires_grad_() for x in (q, k, v)]
        torch.manual_seed(1)
        output = MECHANISMS[name](H, D, dropout=0.3).train()(*inputs, AttentionMask(key_mask, is_causal=True)).output
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    with kernels(choice):
        clean = output_and_gradients(0.0)
        for garbage in (math.inf, math.nan):
            for expected, found in zip(clean, output_and_gradients(garbage), strict=True):
                assert found.isfinite().all() and torch.equal(expected, found)


def layouts(x: Tensor) -> Iterator[Tensor]:
    """Yield x [B, H, N, D] with other strides."""
    yield x.transpose(1, 2).contiguous().transpose(1, 2)
    yield x.mT.contiguous().mT
    yield torch.stack([x, torch.full_like(x, math.nan)], -1)[..., 0]  # every second number
    yield x[:, :, :1].expand_as(x)  # stride 0


@every_mechanism
def test_strides_change_nothing(name, choice):
    mask, mechanism = AttentionMask(torch.tensor([[True] * 5, [True] * 3 + [False] * 2]), True), MECHANISMS[name](H, D)
    with kernels(choice):
        for inputs in zip(*map(layouts, random_qkv()), strict=True):
            expected = mechanism(*(x.contiguous() for x in inputs), mask).output
            torch.testing.assert_close(mechanism(*inputs, mask).output, expected, rtol=1e-5, atol=1e-6)


@every_mechanism
def test_gradients_of_some_inputs_are_those_of_all(name, choice):
    mechanism, mask = MECHANISMS[name](H, D), AttentionMask(is_causal=True)
    every = [x.requires_grad_() for x in random_qkv()]
    with kernels(choice):
        expected = torch.autograd.grad(mechanism(*every, mask).output.square().sum(), every)
        for trained in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            some = [x.detach().requires_grad_(i in trained) for i, x in enumerate(every)]
            output = mechanism(*some, mask).output
            gradients = torch.autograd.grad(output.square().sum(), [some[i] for i in trained])
            torch.testing.assert_close(gradients, tuple(expected[i] for i in trained))
