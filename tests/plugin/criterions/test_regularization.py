"""[RF] Eq. 7 from row statistics equals the same equation computed from the attention weights, in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need, RowStats
from relumt.plugin.criterions.regularization import RegularizerTerms


def compute_from_weights(weights, is_visible, is_real, bound):
    """Return the means of |log Σs| and max(H − C, 0) over heads and real queries, computed row by row.

    Args:
        weights: [B, H, T, S].
        is_visible: [B, 1, T, S] bool.
        is_real: [B, T] bool.
        bound: c.
    """
    norm, excess = [], []
    B, H, T, _ = weights.shape
    for b in range(B):
        for h in range(H):
            for i in range(T):
                if not is_real[b, i]:
                    continue
                total = weights[b, h, i].sum()
                if total <= 1e-6:
                    norm.append(weights.sum() * 0)
                    excess.append(weights.sum() * 0)
                    continue
                p = weights[b, h, i] / total
                p = p[p > 0]
                entropy = -(p * p.log()).sum()
                norm.append(total.log().abs())
                excess.append((entropy - bound * math.log(is_visible[b, 0, i].sum())).clamp(min=0))
    return torch.stack(norm).mean(), torch.stack(excess).mean()


def has_row_stats(name):
    mechanism = MECHANISMS[name](1, 1)
    return mechanism.has_weights and not mechanism.has_negative_weights


@pytest.mark.parametrize("name", [name for name in sorted(MECHANISMS) if has_row_stats(name)])
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32), bound=st.sampled_from([0.3, 0.7]), causal=st.booleans())
def test_values_and_gradients_equal_the_equation(name, seed, bound, causal):
    seeded = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3))
    keys = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mask = AttentionMask(keys, causal)
    result = MECHANISMS[name](3, 4)(q, k, v, mask, Need.WEIGHTS | Need.ROW_STATS)
    terms = RegularizerTerms.from_row_stats(result.row_stats, keys, bound)
    norm, excess = compute_from_weights(result.weights, mask.to_dense(5, 5).expand(2, 1, 5, 5), keys, bound)
    torch.testing.assert_close(terms.norm, norm, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(terms.entropy_excess, excess, rtol=1e-6, atol=1e-6)

    def gradients(scalar):
        return torch.autograd.grad(scalar, (q, k), retain_graph=True)

    expected = gradients(norm + 2 * excess)
    torch.testing.assert_close(gradients(terms.norm + 2 * terms.entropy_excess), expected, rtol=1e-6, atol=1e-6)


def test_an_example_computed_by_hand():
    weights = torch.tensor([[[[0.25, 0.25, 0.25, 0.25], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]).double()
    statistics = RowStats.from_weights(weights, torch.tensor(4))
    terms = RegularizerTerms.from_row_stats(statistics, torch.ones(1, 3, dtype=torch.bool), bound=0.7)
    assert terms.norm.item() == pytest.approx(math.log(2) / 3)
    assert terms.entropy_excess.item() == pytest.approx(0.3 * math.log(4) / 3)
    assert terms.entropy.item() == pytest.approx(math.log(4) / 3)
    assert terms.null_rate.item() == pytest.approx(1 / 3)
