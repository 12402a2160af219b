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


@pytest.mark.parametrize("name", [name for name in distinct_attentions() if MECHANISMS[name](1, 4).has_weights])
def test_a_mask_that_is_reused_before_the_backward_pass_changes_no_gradient(name, monkeypatch):
    def gradients(edits_masks):
        monkeypatch.setattr(dispatch, "RECOMPUTE_THRESHOLD", 1)
        torch.manual_seed(0)
        q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
        mask = AttentionMask(torch.arange(5)[None] < 4, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril())
        output = MECHANISMS[name](2, 4)(q, k, v, mask).output
        if edits_masks:
            mask.key_mask.fill_(True)
            mask.attn_mask.fill_(True)
        return torch.autograd.grad(output.square().sum(), (q, k, v))

    torch.testing.assert_close(gradients(edits_masks=True), gradients(edits_masks=False))


def loss_of_recomputed_attention(monkeypatch, change):
    """Return a mechanism with many weights, its inputs, and a loss; `change` happens before the backward pass."""
    monkeypatch.setattr(dispatch, "RECOMPUTE_THRESHOLD", 1)
    torch.manual_seed(0)
    mechanism = MECHANISMS["ssmax"](2, 4, dropout=0.5).train()
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    loss = mechanism(q * 1, k, v, AttentionMask(), Need.ROW_STATS).output.square().sum()
    change(mechanism)
    return torch.autograd.grad(loss, (q, k, v))


@pytest.mark.parametrize("change", [lambda m: m.eval(), lambda m: setattr(m, "dropout", 0.1)])
def test_mode_and_dropout_are_those_of_the_forward_pass(change, monkeypatch):
    expected = loss_of_recomputed_attention(monkeypatch, lambda _: None)
    torch.testing.assert_close(loss_of_recomputed_attention(monkeypatch, change), expected, rtol=0, atol=0)


def test_a_parameter_that_was_overwritten_before_the_backward_pass_is_refused(monkeypatch):
    def double_scale(mechanism):
        with torch.no_grad():
            mechanism.log_scale.mul_(2)

    with pytest.raises(
        RuntimeError, match="parameter of ScalableSoftmaxAttention was modified in place before the back"
    ):
        loss_of_recomputed_attention(monkeypatch, double_scale)
