"""AttentionMask against the same rule written out pair by pair."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import AttentionMask
from relumt.attention.kernels.key_bounds import key_bounds


@st.composite
def masks(draw):
    B, T, S = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    key_mask = torch.rand(B, S, generator=seeded) > 0.4 if draw(st.booleans()) else None
    attn_mask = torch.rand(T, S, generator=seeded) > 0.4 if draw(st.booleans()) else None
    return AttentionMask(key_mask, draw(st.booleans()), attn_mask), B, T, S


def pair_by_pair(mask, B, T, S):
    visible = torch.ones(B, 1, T, S, dtype=torch.bool)
    for b in range(B):
        for i in range(T):
            for j in range(S):
                is_real = mask.key_mask is None or bool(mask.key_mask[b, j])
                is_past = not mask.is_causal or j <= S - T + i
                is_allowed = mask.attn_mask is None or bool(mask.attn_mask[i, j])
                visible[b, 0, i, j] = is_real and is_past and is_allowed
    return visible


def check_filling(mask, B, T, S, hidden):
    """Check that a NaN remains neither at hidden keys nor in gradients."""
    for value in (0.0, -math.inf, torch.finfo(torch.float32).min):
        x = torch.full((B, 1, T, S), 2.0).masked_fill(hidden, math.nan).requires_grad_()
        filled = mask.fill_hidden(x, value)
        assert torch.equal(filled, torch.full((B, 1, T, S), 2.0).masked_fill(hidden, value))
        (gradient,) = torch.autograd.grad(filled.sum(), x)
        assert torch.equal(gradient, (~hidden).float())


def check_counts(mask, B, T, S):
    expected = pair_by_pair(mask, B, T, S)
    dense = mask.to_dense(T, S)
    assert (dense is None) == (mask.key_mask is None and mask.attn_mask is None and (not mask.is_causal or T == 1))
    assert expected.all() if dense is None else torch.equal(expected, dense.expand_as(expected))
    count = expected.sum(-1, keepdim=True)
    assert torch.equal(mask.count_visible(T, S).expand(B, 1, T, 1), count)
    n = mask.num_visible(T, S, torch.empty(0, dtype=torch.float64))
    assert torch.equal(torch.as_tensor(n, dtype=torch.float64).expand(B, 1, T, 1), count.clamp(min=1).double())
    assert mask.every_query_sees_a_key(T, S, torch.device("cpu")) == bool((count > 0).all())
    check_filling(mask, B, T, S, ~expected)


@pytest.mark.parametrize("has_key_mask", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("has_attn_mask", [False, True])
def test_visible_and_hidden_keys_are_those_of_the_rule(has_key_mask, is_causal, has_attn_mask):
    seeded = torch.Generator().manual_seed(1)
    for T, S in ((1, 5), (4, 4), (3, 5), (5, 3)):
        key_mask = torch.rand(2, S, generator=seeded) > 0.4 if has_key_mask else None
        attn_mask = torch.rand(T, S, generator=seeded) > 0.4 if has_attn_mask else None
        check_counts(AttentionMask(key_mask, is_causal, attn_mask), 2, T, S)


@pytest.mark.parametrize("name", ["key_mask", "attn_mask"])
@pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.ones(2, 3).long(), torch.ones(3).bool()])
def test_a_mask_of_the_wrong_type_or_shape_is_refused(name, mask):
    with pytest.raises(TypeError, match=f"AttentionMask.{name} must be .*; got"):
        AttentionMask(**{name: mask})


def test_a_mask_used_in_inference_mode_can_be_trained_with():
    mask = AttentionMask(torch.tensor([[True, False]]))
    x = torch.ones(1, 1, 1, 2)
    with torch.inference_mode():
        mask.fill_hidden(x, 0.0)
        mask.count_visible(1, 2)
    weights = torch.ones(1, 1, 1, 2, requires_grad=True)
    (mask.fill_hidden(weights * 2, 0.0) / mask.count_visible(1, 2)).sum().backward()
    assert weights.grad.tolist() == [[[[2.0, 0.0]]]]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_mask_does_not_take_over_what_was_computed(copied):
    keys = torch.zeros(1, 4, dtype=torch.bool)
    for key in range(3):
        keys[0, key] = True
    assert AttentionMask(keys).count_visible(1, 4).item() == 3
    other = copied(keys)
    while other._version < keys._version:
        other[0, 1:] = False
    assert other._version == keys._version, "else a version alone would tell"
    assert AttentionMask(other).count_visible(1, 4).item() == 1


@given(masks(), st.booleans())
def test_what_is_computed_from_a_mask_follows_its_changes(case, is_causal):
    mask, B, T, S = case
    keys = torch.ones(B, S, dtype=torch.bool)
    for _ in range(2):
        for other_causal in (is_causal, not is_causal):  # both kinds of masks, on the same tensor
            changed = AttentionMask(keys, other_causal, mask.attn_mask)
            assert torch.equal(
                changed.count_visible(T, S).expand(B, 1, T, 1), pair_by_pair(changed, B, T, S).sum(-1, keepdim=True)
            )
            n = torch.as_tensor(changed.num_visible(T, S, torch.empty(0))).expand(B, 1, T, 1)
            assert torch.equal(n, changed.count_visible(T, S).clamp(min=1).float().expand(B, 1, T, 1))
        start, stop = key_bounds(keys).unbind(-1)
        assert (stop - start >= keys.sum(-1)).all() and torch.equal(stop > start, keys.any(-1))
        keys[:, 0] = False
