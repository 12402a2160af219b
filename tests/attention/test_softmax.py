"""Softmax by explicit weights and by PyTorch's fused attention, between which the shape decides."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch
from tests.attention.cases import cases


def uses_fused(q, k, dropout=0.0, need=Need.NOTHING):
    return MECHANISMS["softmax"](q.shape[1], q.shape[3], dropout).train().is_fused(q, k, k, need)


@pytest.fixture
def fp32_products(monkeypatch):
    """Replace PyTorch's setting of products in fp32: "highest" for MKL, "medium" for oneDNN."""
    return lambda precision: monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)


def output_and_gradients(case, largest_explicit):
    inputs = [x.clone().requires_grad_() for x in (case.q, case.k, case.v)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dispatch, "MAX_EXPLICIT_SOFTMAX_WEIGHTS", largest_explicit)
        output = MECHANISMS["softmax"](case.H, case.D)(*inputs, case.mask).output
    cotangent = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return [output, *torch.autograd.grad((output * cotangent).sum(), inputs)]


@given(case=cases(longest=9), scale=st.sampled_from([1.0, 30.0]))
def test_both_give_the_same_output_and_gradients(case, scale):
    case.q.mul_(scale)
    torch.testing.assert_close(output_and_gradients(case, 1 << 14), output_and_gradients(case, 0), rtol=1e-9, atol=1e-9)


def test_explicit_weights_serve_training_on_short_sentences_and_dropout(fp32_products):
    fp32_products("highest")
    short, long = (torch.randn(2, 2, n, 4, requires_grad=True) for n in (128, 129))
    assert not uses_fused(short, short) and uses_fused(long, long)
    assert uses_fused(short.detach(), short.detach())
    assert not uses_fused(long, long, dropout=0.1) and not uses_fused(long, long, need=Need.WEIGHTS)
    with torch.no_grad():
        assert uses_fused(short, short) and not uses_fused(short, short, dropout=0.1)


def test_explicit_weights_serve_short_sentences_where_fused_attention_packs_its_operands(fp32_products):
    fp32_products("medium")
    one, five, long = (torch.randn(2, 2, n, 4) for n in (1, 5, 129))
    packed, unpacked = torch.randn(2, 2, 13, 4), torch.randn(2, 2, 12, 4)
    assert not uses_fused(five, packed) and uses_fused(five, unpacked) and uses_fused(long, long)
    assert not uses_fused(one, unpacked) and not uses_fused(one, long)
    assert uses_fused(five.bfloat16(), packed.bfloat16()) and uses_fused(five.double(), packed.double())


def test_fused_attention_decides_nothing_about_queries_without_keys(monkeypatch):
    fused = F.scaled_dot_product_attention

    def attend_as_cudnn(q, k, v, mask, **options):
        """Return 7 for queries that the mask lets see no key."""
        return fused(q, k, v, mask, **options).masked_fill(~mask.any(-1, keepdim=True), 7.0)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend_as_cudnn)
    monkeypatch.setattr(dispatch, "MAX_EXPLICIT_SOFTMAX_WEIGHTS", 0)
    q, k, v = (torch.randn(2, 1, 4, 8, dtype=torch.float64).requires_grad_() for _ in range(3))
    key_mask = torch.tensor([[True] * 4, [False, False, True, True]])
    mask = AttentionMask(key_mask, is_causal=True)
    mechanism = MECHANISMS["softmax"](1, 8)
    output = mechanism(q, k, v, mask).output
    assert output[1, :, :2].eq(0).all()
    torch.testing.assert_close(output, mechanism(q, k, v, mask, Need.WEIGHTS).output)
    assert torch.autograd.grad(output.sum(), q)[0][1, :, :2].eq(0).all()


@pytest.mark.parametrize("name", ["softmax", "elastic_softmax"])
def test_queries_without_keys_get_no_gradient_from_large_scores(name):
    inputs = [torch.full((1, 1, 2, 1), value, requires_grad=True) for value in (1e17, -1e17, 1.0)]
    mask = AttentionMask(attn_mask=torch.tensor([[False, False], [True, True]]))
    gradients = torch.autograd.grad(MECHANISMS[name](1, 1)(*inputs, mask).output.sum(), inputs)
    assert gradients[0][..., 0, :].eq(0).all() and all(x.isfinite().all() for x in gradients)
