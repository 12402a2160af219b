"""Measures of feed-forward layers against worked examples and the equations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention.metrics.ffn_metrics import anisotropy, feature_variance, top_share


def test_feature_variance_by_hand():
    assert feature_variance(torch.tensor([[1.0, -1.0], [3.0, -3.0], [5.0, 5.0]])).tolist() == [1, 9, 0]


def test_feature_variance_does_not_see_a_shift_of_all_features():
    x = torch.randn(7, 16)
    torch.testing.assert_close(feature_variance(x + 100), feature_variance(x), rtol=1e-3, atol=0)


def test_top_share_by_hand():
    scores = torch.tensor([[4.0, 0.0, 1.0, 3.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]])
    shares = top_share(scores, [10, 20, 11, 0.1, 100])
    assert shares.flatten().tolist() == pytest.approx([0.4, 0.7, 0.7, 0.4, 1.0])


def test_top_share_counts_whole_slots_exactly():
    assert top_share(torch.ones(1, 1000), [0.2]).item() == pytest.approx(2 / 1000)


def test_top_share_of_a_null_row_is_not_a_number():
    assert top_share(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), [50]).isnan().tolist() == [[True, False]]


def test_anisotropy_by_hand():
    assert anisotropy(torch.eye(3)).item() == pytest.approx(0, abs=1e-7)
    assert anisotropy(torch.tensor([[1.0, 0.0], [5.0, 0.0]])).item() == pytest.approx(1)
    assert anisotropy(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])).item() == pytest.approx(-1)
    assert anisotropy(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).item() == pytest.approx(1 / math.sqrt(2))


@given(seed=st.integers(0, 2**32), slots=st.integers(2, 12), size=st.integers(1, 6))
def test_anisotropy_is_the_mean_over_pairs(seed, slots, size):
    values = torch.randn(slots, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    cosines = [
        float(values[i] @ values[j] / (values[i].norm() * values[j].norm()))
        for i in range(slots)
        for j in range(slots)
        if i != j
    ]
    assert anisotropy(values).item() == pytest.approx(sum(cosines) / len(cosines), abs=1e-9)
