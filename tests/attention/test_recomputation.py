"""Large weights are recomputed in the backward pass: the same values and gradients with less memory."""

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch
from tests.attention.cases import distinct_attentions


def output_and_gradients(name, need, dropout, monkeypatch, threshold):
    """Return the output and the gradients, and the shapes of the tensors that autograd saved."""
    monkeypatch.setattr(dispatch, "RECOMPUTE_THRESHOLD", threshold)
    torch.manual_seed(0)
    mechanism = MECHANISMS[name](2, 4, dropout).train()
    q, k, v = (torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    key_mask = torch.arange(7) < torch.tensor([[7], [5], [3]])
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.shape) or x, lambda x: x):
        result = mechanism(q, k, v, AttentionMask(key_mask, is_causal=True), need)
    loss = result.output.square().sum()
    if result.row_stats is not None:
        loss = loss + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.abs().sum()
    return [result.output, *torch.autograd.grad(loss, (q, k, v))], saved


@pytest.mark.parametrize("name", [name for name in distinct_attentions() if MECHANISMS[name](1, 4).has_weights])
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_values_and_gradients_are_the_same_and_no_weights_are_saved(name, need, dropout, monkeypatch):
    expected, _ = output_and_gradients(name, need, dropout, monkeypatch, threshold=1 << 62)
    found, saved = output_and_gradients(name, need, dropout, monkeypatch, threshold=1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    is_fused_softmax = name == "softmax" and not need and not dropout  # PyTorch decides what it saves
    if not is_fused_softmax:
        assert (3, 2, 7, 7) not in saved
