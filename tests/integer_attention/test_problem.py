"""The bounds: what a kernel accepts, and what it refuses."""

import numpy as np
import pytest

from relumt.errors import UserError
from relumt.integer_attention.problem import Problem, random_problem
from tests.integer_attention.cases import filled, problem


@pytest.mark.parametrize(
    ("width", "inside", "outside", "named"),
    [
        (16, problem(q=500, k=-523), problem(q=501, k=-523), "d·|Δ| = 32·1,024 = 32,768"),
        (16, problem(v=511), problem(v=512), "n·V = 64·512 = 32,768"),
        (16, problem(v=-32768), problem(k=-32768), "d·|Δ| = 32·32,768 = 1,048,576"),
        (32, problem(q=32767, k=-32768, v=32767), None, ""),
    ],
)
def test_the_inhibitor_refuses_sums_that_could_overflow(width, inside, outside, named):
    inside.require_inhibitor_fits(width)
    if outside is not None:
        with pytest.raises(UserError) as refused:
            outside.require_inhibitor_fits(width)
        assert named in str(refused.value) and "\n" not in str(refused.value)
        outside.require_inhibitor_fits(32)


@pytest.mark.parametrize(
    ("width", "inside", "outside", "named"),
    [
        (16, problem(q=33, k=-31), problem(q=32, k=-32), "d·|q|·|k| = 32·32·32 = 32,768"),
        (16, problem(v=255), problem(v=-256), "2^B·|v| = 128·256 = 32,768"),
        (32, problem(q=8191, k=8192), problem(q=8192, k=8192), "d·|q|·|k| = 32·8,192·8,192 = 2,147,483,648"),
    ],
)
def test_dot_products_refuse_sums_that_could_overflow(width, inside, outside, named):
    inside.require_dot_product_fits(width)
    with pytest.raises(UserError) as refused:
        outside.require_dot_product_fits(width)
    assert named in str(refused.value)


@pytest.mark.parametrize("n", [32, 256])
@pytest.mark.parametrize("d", [32, 128])
def test_random_problems_are_within_all_bounds(n, d):
    numbers = random_problem(n, d)
    for width in (16, 32):
        numbers.require_inhibitor_fits(width)
        numbers.require_dot_product_fits(width)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((filled(1).astype(np.int32), filled(1), filled(1), 0, 0, 0), "int32 [64, 32]"),
        ((filled(1)[:, :16], filled(1), filled(1), 0, 0, 0), "int16 [64, 16]"),
        ((*[np.ones((33, 32), np.int16)] * 3, 0, 0, 0), "n = 33, d = 32"),
        ((*[np.ones((32, 0), np.int16)] * 3, 0, 0, 0), "n = 32, d = 0"),
        ((*[np.ones((32, 4128), np.int16)] * 3, 0, 0, 0), "d = 4128"),
        ((*[np.ones(32, np.int16)] * 3, 0, 0, 0), "int16 [32]"),
        ((*[filled(1)] * 3, 16, 0, 0), "shifts 16 and 0"),
        ((*[filled(1)] * 3, 0, -1, 0), "alpha -1"),
    ],
)
def test_other_inputs_are_refused(arguments, named):
    with pytest.raises(UserError, match="expected") as refused:
        Problem(*arguments)
    assert named in str(refused.value)
