"""What may be seen, as structure, against the same rule written out pair by pair."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import AttentionMask


@st.composite
def visibles(draw):
    B, T, S = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    keys = torch.rand(B, S, generator=seeded) > 0.4 if draw(st.booleans()) else None
    pairs = torch.rand(T, S, generator=seeded) > 0.4 if draw(st.booleans()) else None
    return AttentionMask(keys, draw(st.booleans()), pairs), B, T, S


def written_out(mask, B, T, S):
    seen = torch.ones(B, 1, T, S, dtype=torch.bool)
    for b in range(B):
        for i in range(T):
            for j in range(S):
                real = mask.key_mask is None or bool(mask.key_mask[b, j])
                early = not mask.is_causal or j <= S - T + i
                allowed = mask.attn_mask is None or bool(mask.attn_mask[i, j])
                seen[b, 0, i, j] = real and early and allowed
    return seen


@given(visibles())
def test_dense_is_the_rule(case):
    mask, B, T, S = case
    dense = mask.to_dense(T, S)
    expected = written_out(mask, B, T, S)
    assert (dense is None) == (mask.key_mask is None and mask.attn_mask is None and (not mask.is_causal or T == 1))
    assert expected.all() if dense is None else torch.equal(expected, dense.expand_as(expected))


@given(visibles())
def test_count_counts_the_rule(case):
    mask, B, T, S = case
    assert torch.equal(mask.count_visible(T, S).expand(B, 1, T, 1), written_out(mask, B, T, S).sum(-1, keepdim=True))


@given(visibles(), st.data())
def test_rows_are_a_part_of_the_rule_with_every_key_that_they_see(case, data):
    mask, B, T, S = case
    start = data.draw(st.integers(0, T - 1))
    stop = data.draw(st.integers(start + 1, T))
    part, keys = mask.slice_queries(start, stop, T, S)
    expected = written_out(mask, B, T, S)[:, :, start:stop]
    assert not expected[..., keys:].any()
    if keys:
        assert torch.equal(written_out(part, B, stop - start, keys), expected[..., :keys])


@pytest.mark.parametrize("name", ["key_mask", "attn_mask"])
@pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.ones(2, 3).long(), torch.ones(3).bool()])
def test_masks_of_another_kind_are_refused(name, mask):
    with pytest.raises(TypeError, match=f"AttentionMask.{name} must be .*; got"):
        AttentionMask(**{name: mask})


def test_keys_that_are_changed_are_seen_as_they_are():
    mask = AttentionMask(torch.tensor([[True, True, False]]))
    x = torch.ones(1, 1, 1, 3)
    assert mask.count_visible(1, 3).item() == 2 and mask.fill_hidden_(x.clone(), 0.0).sum() == 2
    mask.key_mask[0, 0] = False
    assert mask.count_visible(1, 3).item() == 1 and mask.fill_hidden_(x.clone(), 0.0).sum() == 1


def test_what_was_seen_under_inference_can_be_trained_with():
    mask = AttentionMask(torch.tensor([[True, False]]))
    x = torch.ones(1, 1, 1, 2)
    with torch.inference_mode():
        mask.fill_hidden_(x.clone(), 0.0)
        mask.count_visible(1, 2)
    weights = torch.ones(1, 1, 1, 2, requires_grad=True)
    (mask.fill_hidden_(weights * 2, 0.0) / mask.count_visible(1, 2)).sum().backward()
    assert weights.grad.tolist() == [[[[2.0, 0.0]]]]


def test_what_is_asked_again_is_kept():
    mask = AttentionMask(torch.tensor([[True, False]]))
    assert mask.count_visible(1, 2) is mask.count_visible(1, 2)
