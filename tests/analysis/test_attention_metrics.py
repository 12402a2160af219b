"""Measures of attention rows and head diversity against worked examples and torch.distributions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.metrics import attention_metrics as rows
from relumt.metrics.flops import rela_g_flops, softmax_flops
from relumt.metrics.head_diversity import jensen_shannon_divergence, renormalize
from relumt.papers import papers

ROW = torch.tensor([[[0.0, 2.0, 0.0, 6.0, 0.0]]])  # [1, 1, 5], its last key not visible
SEEN = torch.tensor([4])
NOTHING = torch.zeros(1, 1, 5)


def test_a_row_by_hand():
    assert rows.sparsity(ROW, SEEN).item() == 0.5
    assert not rows.is_null_row(ROW).item()
    assert rows.entropy(ROW).item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    shares = rows.top_share(ROW, SEEN, [1, 25, 26, 50, 100]).flatten().tolist()
    assert shares == pytest.approx([0.75, 0.75, 1.0, 1.0, 1.0])
    position = torch.tensor([1])
    assert rows.mean_distance(ROW, position).item() == pytest.approx(0.75 * 2)
    assert rows.distant_share(ROW, position, 1).item() == pytest.approx(0.75)
    assert rows.distant_share(ROW, position, 2).item() == 0


def test_a_null_row():
    assert rows.sparsity(NOTHING, SEEN).item() == 1
    assert rows.is_null_row(NOTHING).item() and rows.entropy(NOTHING).item() == 0
    assert (
        rows.top_share(NOTHING, SEEN, [10]).isnan().all()
        and rows.mean_distance(NOTHING, torch.tensor([0])).isnan().all()
    )


@given(st.integers(1, 30), st.integers(0, 2**31))
def test_softmax_rows_have_no_zeros_and_the_entropy_of_torch(keys, seed):
    p = torch.randn(7, 2, keys, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)
    expected = torch.distributions.Categorical(probs=p).entropy()
    torch.testing.assert_close(rows.entropy(p), expected, atol=1e-9, rtol=1e-9)
    seen = torch.full((7,), keys)
    assert not rows.sparsity(p, seen).any() and not rows.is_null_row(p).any()
    torch.testing.assert_close(rows.top_share(p, seen, [100])[0], torch.ones(7, 2, dtype=torch.float64))


def test_divergence_is_0_for_equal_heads_and_log_h_for_disjoint_ones():
    one = torch.tensor([0.5, 0.5, 0.0, 0.0])
    assert jensen_shannon_divergence(one.expand(1, 3, 4)).item() == pytest.approx(0, abs=1e-7)
    assert jensen_shannon_divergence(torch.eye(4)[None]).item() == pytest.approx(math.log(4))
    # H(3/4, 1/4) − (0 + log 2)/2
    mixed = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) - math.log(2) / 2
    assert jensen_shannon_divergence(mixed).item() == pytest.approx(expected)


def test_renormalized_rows_are_distributions_and_null_rows_attend_to_the_dummy():
    weights = torch.tensor([[[0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]])
    mask = torch.tensor([[True, True, False]])
    p = renormalize(weights, mask, 0.5)
    e2 = math.exp(2)
    assert p[0, 0].tolist() == pytest.approx([1 / (1 + e2), e2 / (1 + e2), 0, 0])
    assert p[0, 1].tolist() == [0, 0, 0, 1]


def test_flops_agree_with_the_paper():
    checks = papers()["RL"]["table4"]["checks"]
    for case, printed in checks.items():
        heads, model, T = (int(part.split("=")[1]) for part in case.split())
        assert softmax_flops(T, heads) == pytest.approx(printed["softmax"], rel=1e-3)
        assert rela_g_flops(T, heads, model) == pytest.approx(printed["rela_g"], rel=1e-3)
