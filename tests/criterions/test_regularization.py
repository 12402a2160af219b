"""[RF] Eq. 7 from row statistics against the same equation from the materialised weights, in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need, RowStats
from relumt.criterions.regularization import RegularizerTerms


def written_out(weights, seen, real, bound):
    """Mean |log Σs| and max(H − C, 0) over heads and real rows, one row at a time; [B, H, T, S] and [B, T] masks."""
    norm, excess = [], []
    B, H, T, _ = weights.shape
    for b in range(B):
        for h in range(H):
            for i in range(T):
                if not real[b, i]:
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
                excess.append((entropy - bound * math.log(seen[b, 0, i].sum())).clamp(min=0))
    return torch.stack(norm).mean(), torch.stack(excess).mean()


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@given(seed=st.integers(0, 2**32), bound=st.sampled_from([0.3, 0.7]), causal=st.booleans())
def test_value_and_gradient_are_the_equation(name, seed, bound, causal):
    seeded = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3))
    keys = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mask = AttentionMask(keys, causal)
    result = MECHANISMS[name](3, 4)(q, k, v, mask, Need.WEIGHTS | Need.ROW_STATS)
    if result.row_stats is None:
        pytest.skip(f"{name} has no weights")
    ours = RegularizerTerms.from_row_stats(result.row_stats, keys, bound)
    norm, excess = written_out(result.weights, mask.to_dense(5, 5).expand(2, 1, 5, 5), keys, bound)
    torch.testing.assert_close(ours.norm, norm, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.entropy_excess, excess, rtol=1e-6, atol=1e-6)

    def gradients(scalar):
        return torch.autograd.grad(scalar, (q, k), retain_graph=True)

    for direct, from_statistics in zip(
        gradients(norm + 2 * excess), gradients(ours.norm + 2 * ours.entropy_excess), strict=True
    ):
        torch.testing.assert_close(from_statistics, direct, rtol=1e-6, atol=1e-6)


def test_by_hand():
    weights = torch.tensor([[[[0.25, 0.25, 0.25, 0.25], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]).double()
    statistics = RowStats.from_weights(weights, torch.tensor(4))
    regularity = RegularizerTerms.from_row_stats(statistics, torch.ones(1, 3, dtype=torch.bool), bound=0.7)
    assert regularity.norm.item() == pytest.approx(math.log(2) / 3)
    assert regularity.entropy_excess.item() == pytest.approx(0.3 * math.log(4) / 3)
    assert regularity.entropy.item() == pytest.approx(math.log(4) / 3)
    assert regularity.null_rate.item() == pytest.approx(1 / 3)


def test_padded_queries_do_not_count():
    seeded = torch.Generator().manual_seed(1)
    weights = torch.rand(1, 2, 3, 4, generator=seeded, dtype=torch.float64)
    padded = torch.cat([weights, torch.full((1, 2, 2, 4), 9.0, dtype=torch.float64)], dim=2)
    real = torch.tensor([[True, True, True, False, False]])
    short = RegularizerTerms.from_row_stats(RowStats.from_weights(weights, torch.tensor(4)), real[:, :3], 0.3)
    long = RegularizerTerms.from_row_stats(RowStats.from_weights(padded, torch.tensor(4)), real, 0.3)
    for name in ("norm", "entropy_excess", "entropy", "null_rate"):
        torch.testing.assert_close(getattr(short, name), getattr(long, name))


def test_the_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one attention"):
        RegularizerTerms.mean([])
