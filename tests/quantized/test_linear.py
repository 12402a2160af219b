"""Linear layers in integers against exact products."""

import numpy as np
import pytest
import torch
from torch import nn

from relumt.quantized.integers import largest_integer
from relumt.quantized.linear import IntegerLinear
from tests.quantized import oracle


@pytest.mark.parametrize("bits", [2, 8, 16])
def test_sums_equal_exact_integers(bits):
    largest = largest_integer(bits)
    generator = np.random.default_rng(2)
    x, weight = (generator.integers(-largest, largest + 1, (n, 512)) for n in (7, 9))
    x[0], weight[0] = largest, largest  # the largest sum
    bias = generator.integers(-(2**40), 2**40, 9)
    layer = IntegerLinear(512, 9, has_bias=True, bits=bits)
    layer.weight.copy_(torch.from_numpy(weight))
    layer.bias.copy_(torch.from_numpy(bias))
    found = layer(torch.from_numpy(x).double())
    assert found.long().tolist() == oracle.linear(x, weight, bias).tolist()
    assert layer.largest_sum == int((np.abs(x[0]) * np.abs(weight[0])).sum())


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_float_layer_is_approximated(has_bias):
    torch.manual_seed(0)
    original, x = nn.Linear(64, 32, bias=has_bias), torch.randn(5, 3, 64)
    layer = IntegerLinear(64, 32, has_bias, 16)
    layer.quantize_from(original, x.abs().max())
    assert layer.weight.dtype == torch.int16 and layer.weight.abs().max() == largest_integer(16)
    torch.testing.assert_close(layer(x), original(x), atol=1e-3, rtol=0)
    clipped = layer(torch.where(x == x.max(), 1e30, x))
    torch.testing.assert_close(clipped, original(x), atol=2.0, rtol=0)


def test_sums_that_are_not_exact_are_refused():
    with pytest.raises(ValueError, match="not exact in float64; use fewer bits"):
        IntegerLinear(2**24, 1, has_bias=False, bits=16)


def test_widths_of_accumulators():
    """256·32,767² < 2^38 needs 39 bits with its sign; 12 bits fit 32."""
    assert IntegerLinear(256, 1, False, 16).accumulator_width() == 39
    assert IntegerLinear(256, 1, False, 12).accumulator_width() == 31
    layer = IntegerLinear(256, 1, True, 16)
    for bias, bits in ((0, 39), (2**38 - 1 - layer.largest_sum, 39), (layer.largest_sum - 2**38, 40)):
        layer.bias.fill_(bias)
        assert layer.accumulator_width() == bits
