"""Dropout: its distribution, scale and gradient."""

import pytest
import torch

from relumt.attention.dropout import LEVELS, dropout


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_drops_the_asked_share_and_keeps_the_mean(p):
    torch.manual_seed(1)
    y = dropout(torch.ones(1000, 1001), p)
    n = y.numel()
    share = (y == 0).sum().item() / n
    assert abs(share - p) < 5 * (p * (1 - p) / n) ** 0.5  # five standard deviations
    kept = y[y != 0]
    assert torch.allclose(kept, torch.tensor(1 / (1 - p)), rtol=1e-4)
    exact = round(p * LEVELS) / LEVELS
    assert kept[0].item() == pytest.approx(1 / (1 - exact), rel=1e-6)  # unbiased for the p that is drawn


def test_elements_are_independent():
    """Elements from the same random number, from neighboring numbers and from different calls are uncorrelated."""
    torch.manual_seed(2)
    n = 1 << 20
    first, second = (dropout(torch.ones(n), 0.3).ne(0).float() for _ in range(2))
    for distance in (1, 2, 3, 4, 5, 64):
        assert abs(torch.corrcoef(torch.stack((first[distance:], first[:-distance])))[0, 1]) < 5 / n**0.5
    assert abs(torch.corrcoef(torch.stack((first, second)))[0, 1]) < 5 / n**0.5
    for lane in range(4):
        assert abs(first[lane::4].mean() - 0.7) < 5 * (0.21 / (n / 4)) ** 0.5


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (5, 7), (2, 0, 3), (4, 3, 2, 9)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_any_shape_and_dtype(shape, dtype):
    y = dropout(torch.ones(shape, dtype=dtype), 0.5)
    assert y.shape == shape
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_the_gradient_has_the_same_mask():
    x = torch.randn(30, 40, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.3)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)


def test_extreme_probabilities():
    x = torch.randn(5, 6)
    assert torch.equal(dropout(x, 0.0), x)
    assert not dropout(x, 1.0).any()
    assert dropout(x, 1 - 1e-9).isfinite().all()
