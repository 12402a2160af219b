"""The Inhibitor in integers against the exact oracle, and against the float mechanism within a proven bound."""

import math

import numpy as np
import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask
from relumt.quantized.attention import CHUNK_ELEMENTS, MAX_RIGHT_SHIFT, IntegerInhibitor, SignedIntegerInhibitor
from relumt.quantized.calibration import HeadRanges
from relumt.quantized.integers import largest_integer
from tests.quantized import oracle

B, H, T, S, D = 2, 3, 5, 6, 8
KINDS = {
    "inhibitor": (IntegerInhibitor, oracle.attend),
    "inhibitor_signed": (SignedIntegerInhibitor, oracle.attend_signed),
}
MASKS = {
    "none": AttentionMask(),
    "padding": AttentionMask(torch.tensor([[True] * S, [False, False] + [True] * (S - 2)])),
    "causal": AttentionMask(is_causal=True),
    "pattern": AttentionMask(attn_mask=torch.arange(T * S).view(T, S) % 3 != 0),
}


def heads(seed=0, size=1.0, keys=S):
    generator = torch.Generator().manual_seed(seed)
    return [size * torch.randn(B, H, length, D, generator=generator) for length in (T, keys, keys)]


def ranges(q, k, v):
    pairs = torch.stack([q.abs().amax((0, 2, 3)), k.abs().amax((0, 2, 3))]).amax(0)
    return HeadRanges(pairs, v.abs().amax((0, 2, 3)))


def quantized(name, q, k, v, bits=16, **options):
    """The float mechanism and its integer version with scales for these tensors."""
    original = MECHANISMS[name](H, D, **options)
    attention = KINDS[name][0](H, D, bits, original.options)
    attention.quantize_from(original, ranges(q, k, v))
    return original, attention


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bits", [4, 16])
def test_integers_equal_the_oracle_digit_by_digit(name, mask, bits):
    largest = largest_integer(bits)
    generator = np.random.default_rng(1)
    q, k, v = (generator.integers(-largest, largest + 1, (B, H, n, D)) for n in (T, S, S))
    q[0, 0, 0], k[0, 0, 0] = largest, -largest  # the largest distance
    attention = KINDS[name][0](H, D, bits)
    shifts, offsets = [bits + 1, 2, -2], [largest // 3, 0, -5]
    attention.right_shift[:, 0, 0] = torch.tensor(shifts).clamp(min=0)
    attention.left_shift[:, 0, 0] = -torch.tensor(shifts).clamp(max=0)
    attention.offset[:, 0, 0] = torch.tensor(offsets)
    visible = MASKS[mask].to_dense(T, S)
    found = attention.attend_integers(*(torch.from_numpy(x).int() for x in (q, k, v)), visible)
    assert found.dtype == torch.int32
    dense = np.ones((B, H, T, S), bool) if visible is None else visible.expand(B, H, T, S).numpy()
    for b in range(B):
        for h in range(H):
            expected = KINDS[name][1](q[b, h], k[b, h], v[b, h], shifts[h], offsets[h], largest, dense[b, h])
            assert found[b, h].tolist() == expected.tolist()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", [{}, {"learn": True, "gamma": 0.5}, {"shift": -0.25}, {"scale": "visible"}])
def test_float_output_is_within_the_bound_of_rounding(name, options):
    q, k, v = heads(size=0.3)
    mask = MASKS["padding"]
    original, attention = quantized(name, q, k, v, bits=12, **options)
    gamma = torch.full((H, 1, 1), original.gamma)
    if original.options.learn:
        factor = torch.tensor([0.8, 1.1, 2.0])[:, None, None]
        original.log_factor.data += factor.log()
        gamma *= factor
        attention.quantize_from(original, ranges(q, k, v))
    exact = original.double()(q.double(), k.double(), v.double(), mask).output
    # q and k are off by half their scale each, D times; shift, α and v by half the scale of values each.
    bound = S * (D * attention.pair_scale / gamma + 1.5 * attention.value_scale)
    error = (attention(q, k, v, mask).output - exact).abs()
    assert (error <= bound).all() and exact.abs().max() > 10 * error.max() > 0


@pytest.mark.parametrize("name", KINDS)
def test_sixteen_bits_are_close_to_float(name):
    q, k, v = heads(size=0.3)
    original, attention = quantized(name, q, k, v)
    expected = original(q, k, v, MASKS["causal"]).output
    torch.testing.assert_close(attention(q, k, v, MASKS["causal"]).output, expected, atol=2e-3, rtol=0)


def test_chunks_of_queries_change_nothing(monkeypatch):
    q, k, v = heads()
    attention = quantized("inhibitor", q, k, v)[1]
    for mask in MASKS.values():
        expected = attention(q, k, v, mask).output
        with monkeypatch.context() as patch:
            patch.setattr("relumt.quantized.attention.CHUNK_ELEMENTS", 2 * k.numel())
            assert torch.equal(attention(q, k, v, mask).output, expected)
    assert CHUNK_ELEMENTS > B * H * S * D


def test_a_query_without_keys_and_an_empty_batch_give_zeros():
    q, k, v = heads()
    attention = quantized("inhibitor", q, k, v)[1]
    hidden = AttentionMask(torch.zeros(B, S, dtype=torch.bool))
    assert not attention(q, k, v, hidden).output.any()
    assert attention(q[:, :, :0], k, v, AttentionMask()).output.shape == (B, H, 0, D)
    assert not attention(q, k[:, :, :0], v[:, :, :0], AttentionMask()).output.any()


def test_values_out_of_range_become_the_largest():
    q, k, v = heads()
    attention = quantized("inhibitor", q, k, v)[1]
    bound = v.abs().amax((0, 2, 3), keepdim=True) * 2  # the scale of values is at most twice what the range needs
    inside = attention(q, k, torch.where(v > 0, 10 * bound, v), AttentionMask()).output
    beyond = attention(q, k, torch.where(v > 0, 1e30, v), AttentionMask()).output
    assert torch.equal(inside, beyond) and beyond.isfinite().all()


def test_nan_is_not_hidden():
    q, k, v = heads()
    attention = quantized("inhibitor", q, k, v)[1]
    for number, whole in enumerate((False, True, True)):  # one query, or what all queries see
        inputs = [x.clone() for x in (q, k, v)]
        inputs[number][0, 1, 2, 0] = float("nan")
        is_nan = attention(*inputs, AttentionMask()).output.isnan()
        assert is_nan[0, 1, slice(None) if whole else 2].all() and is_nan.sum() == D * (T if whole else 1)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e12])
def test_any_ratio_of_the_ranges_is_represented(size):
    q, k, v = heads()
    original, attention = quantized("inhibitor", size * q, size * k, v)
    r = attention.right_shift - attention.left_shift
    assert (r <= MAX_RIGHT_SHIFT).all() and attention.value_scale.isfinite().all()
    expected = original(size * q, size * k, v, AttentionMask()).output
    torch.testing.assert_close(attention(size * q, size * k, v, AttentionMask()).output, expected, atol=1e-2, rtol=1e-3)


def test_sizes_that_could_overflow_are_refused():
    largest = largest_integer(16)
    with pytest.raises(ValueError, match="do not fit int32; use fewer bits"):
        IntegerInhibitor(1, math.ceil(2**30 / (2 * largest)), 16)
    attention = IntegerInhibitor(1, 1, 16)
    keys = torch.zeros(1, 1, 2**31 // largest + 1, 1)
    with pytest.raises(ValueError, match="the sum over 65539 keys of 16 bits does not fit int32"):
        attention(keys[:, :, :1], keys, keys, AttentionMask())


def test_accumulators_of_sixteen_bits_suffice_for_ten_bit_numbers():
    """D = 32: 32·1,022 = 32,704 and 64·511 = 32,704 are below 32,768, but 65·511 is not."""
    attention = IntegerInhibitor(4, 32, 10)
    assert [attention.distance_width(), attention.sum_width(64), attention.sum_width(65)] == [16, 16, 17]
    attention = IntegerInhibitor(4, 32, 16)
    assert [attention.distance_width(), attention.sum_width(1024)] == [22, 26]
