"""Large weights are computed again in the backward pass: the same values and gradients, and less memory."""

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention import mechanism as base


def attend(name, need, dropout, monkeypatch, threshold):
    monkeypatch.setattr(base, "RECOMPUTE_THRESHOLD", threshold)
    torch.manual_seed(0)
    mechanism = MECHANISMS[name](2, 4, dropout).train()
    q, k, v = (torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    keys = torch.arange(7) < torch.tensor([[7], [5], [3]])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        result = mechanism(q, k, v, AttentionMask(keys, is_causal=True), need)
    total = result.output.square().sum()
    if result.row_stats is not None:
        total = total + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.abs().sum()
    return [result.output, *torch.autograd.grad(total, (q, k, v))], kept


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_values_and_gradients_are_the_same(name, need, dropout, monkeypatch):
    expected, _ = attend(name, need, dropout, monkeypatch, threshold=1 << 62)
    found, kept = attend(name, need, dropout, monkeypatch, threshold=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if "inhibitor" not in name and (need or dropout or name != "softmax"):
        assert (3, 2, 7, 7) not in kept


def test_without_gradients_nothing_is_recomputed(monkeypatch):
    monkeypatch.setattr(base, "RECOMPUTE_THRESHOLD", 1)
    monkeypatch.setattr(base, "checkpoint", None)
    q = torch.randn(1, 1, 3, 4)
    with torch.no_grad():
        MECHANISMS["relu"](1, 4)(q, q, q, AttentionMask())
