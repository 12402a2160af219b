"""Every mechanism and every implementation that serves a CPU, against the oracle in float64."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import pytest
import torch
from torch import Tensor

from relumt.attention import MECHANISMS, Mechanism, Need
from relumt.attention.kernels import dispatch, pointwise_blocked
from relumt.kernel_setting import VARIABLE
from tests.attacks.numeric_cases import NumericCase, draw_case
from tests.attention.conftest import bfloat16  # noqa: F401 (a fixture)

pytestmark = pytest.mark.attack("numerics")

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
            if is_slow or one != "fused":  # torch.compile takes half a minute
                yield "reference", spec(H, D, implementation=one), Need.NOTHING
        return
    mechanism = spec(H, D)
    for need in (Need.NOTHING, Need.ROW_STATS | Need.WEIGHTS):
        yield "reference", mechanism, need
    if case.name == "softmax":
        yield "auto", mechanism, Need.NOTHING  # fused
    if mechanism.pointwise_activation:
        yield "auto", mechanism, Need.NOTHING
        yield "auto", mechanism, Need.ROW_STATS
        if is_slow:
            yield "fused", mechanism, Need.ROW_STATS


@contextmanager
def kernels(choice: str) -> Iterator[None]:
    """Set RELUMT_KERNELS; "auto" computes pointwise attention in small blocks, and softmax fused, whatever the size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, choice)
        patched.setattr(dispatch, "MIN_BLOCKED_WEIGHTS", 1)
        if choice == "auto":
            patched.setattr(dispatch, "MAX_EXPLICIT_SOFTMAX_WEIGHTS", 0)
        patched.setattr(pointwise_blocked, "BLOCK_WEIGHTS", 64)
        yield


def check_case(case: NumericCase, is_slow: bool) -> int:
    """Compare all implementations with the oracle; return how many there are."""
    expected, tolerance, count = case.exact(), case.tolerance(), 0
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
        if not (case.kind == "huge scores" and case.name == "softmax" and choice == "auto"):
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


def check_cases(attack, first: int, stop: int, is_slow: bool = False) -> None:
    for index in range(first, stop):
        attack.outcomes += ["handled"] * check_case(draw_case(index), is_slow)


@pytest.mark.parametrize("first", range(0, 192, 16))
def test_random_cases(attack, first):
    check_cases(attack, first, first + 16)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(192, 704, 64))
@pytest.mark.usefixtures("bfloat16")  # lets Triton's interpreter compute in this type
def test_more_random_cases(attack, first):
    check_cases(attack, first, first + 64, is_slow=True)
