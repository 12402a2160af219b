"""The pointwise Triton kernels against PyTorch in float64: on a GPU, or interpreted with small sizes."""

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.errors import UserError

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # tests/conftest.py turns on the interpreter
from relumt.attention.kernels import dispatch, pointwise_triton  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
POINTWISE = sorted(name for name, spec in MECHANISMS.items() if spec(1, 16).pointwise_activation)
SHAPES = [(2, 2, 50, 50, 16), (1, 1, 33, 90, 24), (2, 1, 1, 5, 8), (1, 2, 65, 40, 128)]


def random_inputs(B, H, T, S, D, dtype=torch.float32, grad=True):
    """Return q, k, v and a key mask with padding at both ends and in between."""
    # None of these seeds gives a score so close to 0 that float32 and float64 disagree on its sign.
    generator = torch.Generator().manual_seed(B + T + S + D + 1)
    q, k, v = (torch.randn(B, H, n, D, generator=generator).to(DEVICE, dtype).requires_grad_(grad) for n in (T, S, S))
    key_mask = torch.rand(B, S, generator=generator) > 0.3
    key_mask[0, : S // 3] = False  # with a causal mask, the first queries see no key
    key_mask[-1, S - S // 3 :] = False
    return q, k, v, key_mask.to(DEVICE)


def make_params(activation, q, mask):
    n = mask.num_visible(q.shape[2], mask.key_mask.shape[1], torch.empty(0, device=q.device))[:, 0, :, 0]
    return PointwiseParams(activation, (q.shape[3] * n / 2).rsqrt(), -n.log() if activation == "sigmoid" else None)


def exact_attention(q, k, v, params, mask, dropout_mask=1.0):
    """Return the output and both row sums in float64."""
    B, _, T, _ = q.shape
    factor, bias = (
        0.0 if x is None else x.double().expand(B, T)[:, None, :, None] for x in (params.factor, params.bias)
    )
    scores = q @ k.transpose(-2, -1) * factor + bias
    weights = scores.relu() if params.activation == "relu" else scores.sigmoid()
    weights = weights.masked_fill(~mask.to_dense(T, k.shape[2], q.device), 0.0)
    return (weights * dropout_mask) @ v, weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)


def assert_close_in_norm(actual, expected, tolerance):
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize("size", [8, 32])
def test_values_of_another_size_than_keys_use_the_reference(size, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, _, key_mask = random_inputs(1, 1, 5, 6, 16, grad=False)
    v = torch.randn(1, 1, 6, size, device=DEVICE)
    output = MECHANISMS["relu"](1, 16)(q, k, v, AttentionMask(key_mask)).output
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    torch.testing.assert_close(output, MECHANISMS["relu"](1, 16)(q, k, v, AttentionMask(key_mask)).output)


def with_gradients(outputs, inputs, grads):
    """Return the outputs and, given the gradients of the outputs, those of the inputs."""
    loss = sum((x * grad.to(x.dtype)).sum() for x, grad in zip(outputs, grads, strict=True))
    return [x.detach() for x in outputs] + list(torch.autograd.grad(loss, inputs))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_outputs_row_stats_and_gradients(shape, causal, activation):
    q, k, v, key_mask = random_inputs(*shape)
    mask = AttentionMask(key_mask, causal)
    params = make_params(activation, q, mask)
    outputs = pointwise_triton.attend(q, k, v, params, key_mask, causal, 0.0, True, torch.float32)
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = with_gradients(exact_attention(*doubles, params, mask), doubles, grads)
    assert_close_in_norm(with_gradients(outputs, (q, k, v), grads), expected, TOLERANCE[torch.float32])


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_outputs_and_gradients_of_relu_without_row_stats(dtype, causal):
    """Without a bias and row stats, factors multiply sums over keys, except in float16."""
    q, k, v, key_mask = random_inputs(2, 1, 33, 90, 24, dtype)
    mask = AttentionMask(key_mask, causal)
    params = make_params("relu", q, mask)
    output = pointwise_triton.attend(q, k, v, params, key_mask, causal, 0.0, False, dtype)[0]
    grads = [torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = with_gradients(exact_attention(*doubles, params, mask)[:1], doubles, [grads[0].double()])
    assert_close_in_norm(with_gradients([output], (q, k, v), grads), expected, TOLERANCE[dtype])


def test_float16_weights_beyond_its_range_are_in_range_with_their_factors():
    q, k = (torch.full((1, 1, 3, 16), value, dtype=torch.float16, device=DEVICE) for value in (300.0, 200.0))
    v = torch.eye(16, dtype=torch.float16, device=DEVICE)[None, None, :3]
    params = PointwiseParams("relu", torch.full((1, 1), 1e-3, device=DEVICE))
    output = pointwise_triton.attend(q, k, v, params, None, False, 0.0, False, torch.float16)[0]
    torch.testing.assert_close(output[..., :3], torch.full_like(output[..., :3], 960.0))


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("shape", [(1, 2, 70, 70, 32), (2, 1, 33, 90, 64)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(shape, activation, dtype):
    q, k, v, key_mask = random_inputs(*shape, dtype)
    mask = AttentionMask(key_mask, True)
    params = make_params(activation, q, mask)
    outputs = pointwise_triton.attend(q, k, v, params, key_mask, True, 0.0, True, dtype)
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    rounded = [grad.to(x.dtype).double() for x, grad in zip(outputs, grads, strict=True)]
    expected = with_gradients(exact_attention(*doubles, params, mask), doubles, rounded)
    assert_close_in_norm(with_gradients(outputs, (q, k, v), grads), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("is_causal", [False, True])
def test_dropout_is_the_same_in_both_directions_without_row_stats(is_causal):
    T, S = 40, 48
    q, k, _, key_mask = random_inputs(2, 2, T, S, S)
    v = torch.eye(S, device=DEVICE).repeat(2, 2, 1, 1).requires_grad_()  # so that the output is the weights
    mask = AttentionMask(key_mask, is_causal)
    params = make_params("relu", q, mask)
    output = pointwise_triton.attend(q, k, v, params, key_mask, is_causal, 0.3, False, torch.float32)[0]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    without_dropout = exact_attention(*doubles, params, mask)[0]
    dropout_mask = (output != 0).double() / 0.7
    assert 0.6 < (dropout_mask[without_dropout != 0] > 0).double().mean() < 0.8
    grads = [torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)]
    expected = with_gradients(exact_attention(*doubles, params, mask, dropout_mask.detach())[:1], doubles, grads)
    assert_close_in_norm(with_gradients([output], (q, k, v), grads), expected, TOLERANCE[torch.float32])


def test_dropout_is_the_same_in_both_directions_and_leaves_row_stats_alone():
    T, S = 40, 48
    q, k, _, key_mask = random_inputs(2, 2, T, S, S)
    v = torch.eye(S, device=DEVICE).repeat(2, 2, 1, 1).requires_grad_()  # so that the output is the weights
    mask = AttentionMask(key_mask, False)
    params = make_params("sigmoid", q, mask)
    torch.manual_seed(5)
    outputs = pointwise_triton.attend(q, k, v, params, key_mask, False, 0.3, True, torch.float32)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    without_dropout = exact_attention(*doubles, params, mask)[0]
    dropout_mask = (outputs[0] != 0).double() / 0.7
    visible = (without_dropout != 0).expand_as(dropout_mask)
    assert 0.6 < (dropout_mask[visible] > 0).double().mean() < 0.8
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    expected = with_gradients(exact_attention(*doubles, params, mask, dropout_mask.detach()), doubles, grads)
    assert_close_in_norm(with_gradients(outputs, (q, k, v), grads), expected, TOLERANCE[torch.float32])
    torch.manual_seed(5)
    assert torch.equal(
        pointwise_triton.attend(q, k, v, params, key_mask, False, 0.3, False, torch.float32)[0], outputs[0]
    )


@pytest.mark.parametrize("name", POINTWISE)
def test_dropout_of_everything_gives_zero_and_finite_gradients(name, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, key_mask = random_inputs(2, 2, 9, 9, 16)
    mechanism = MECHANISMS[name](2, 16, dropout=1.0).to(DEVICE).train()
    output = mechanism(q, k, v, AttentionMask(key_mask), Need.NOTHING).output
    gradients = torch.autograd.grad(output.sum(), (q, k, v))
    assert output.eq(0).all() and all(x.isfinite().all() for x in gradients)


def test_every_output_is_written_and_null_rows_are_zero(monkeypatch):
    q, k, v, key_mask = random_inputs(2, 1, 65, 65, 24)
    key_mask[1] = False
    params = make_params("relu", q, AttentionMask(key_mask, True))

    def poisoned(original):
        def make_poisoned(*args, **kwargs):
            tensor = original(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return make_poisoned

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    outputs = pointwise_triton.attend(q, k, v, params, key_mask, True, 0.0, True, torch.float32)
    gradients = torch.autograd.grad(outputs[0].sum() + outputs[1].sum(), (q, k, v))
    assert all(x.isfinite().all() for x in (*outputs, *gradients))
    assert all(x[1].eq(0).all() for x in (*outputs, *gradients)) and outputs[0][0, :, :21].eq(0).all()


@pytest.mark.slow
def test_gradcheck_in_float32():
    q, k, v, key_mask = random_inputs(1, 1, 3, 5, 4)
    mask = AttentionMask(torch.ones_like(key_mask), True)
    params = make_params("sigmoid", q, mask)

    def attend(q, k, v):
        return pointwise_triton.attend(q, k, v, params, mask.key_mask, True, 0.0, True, torch.float32)

    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(attend, (q, k, v), eps=1e-2, atol=2e-3, rtol=1e-2)


@pytest.mark.parametrize("name", POINTWISE)
def test_every_pointwise_mechanism_uses_the_kernels(name, monkeypatch):
    q, k, v, key_mask = random_inputs(2, 2, 20, 20, 16, grad=False)
    mask = AttentionMask(key_mask, True)
    mechanism = MECHANISMS[name](2, 16).to(DEVICE)
    calls = []
    attend = pointwise_triton.attend
    monkeypatch.setattr(pointwise_triton, "attend", lambda *a: calls.append(1) or attend(*a))
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    fused = mechanism(q, k, v, mask, Need.ROW_STATS)
    assert calls
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    reference = mechanism(q.double(), k.double(), v.double(), mask, Need.ROW_STATS)
    assert len(calls) == 1
    actual, expected = (
        (x.output, x.row_stats.weight_sum, x.row_stats.weight_log_weight_sum, x.row_stats.num_keys.double())
        for x in (fused, reference)
    )
    assert_close_in_norm(actual, expected, TOLERANCE[torch.float32])


def test_unsupported_calls_use_the_reference_and_warn_once(monkeypatch, caplog):
    q, k, v, key_mask = random_inputs(1, 1, 6, 6, 16, grad=False)
    mechanism = MECHANISMS["relu"](1, 16).to(DEVICE)
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    dispatch._warn_once.cache_clear()
    attn_mask = torch.ones(6, 6, dtype=torch.bool, device=DEVICE).tril()
    for _ in range(2):
        with_attn_mask = mechanism(q, k, v, AttentionMask(key_mask, attn_mask=attn_mask)).output
        assert mechanism(q, k, v, AttentionMask(key_mask, True), Need.WEIGHTS).weights is not None
        assert (
            mechanism(q.double(), k.double(), v.double(), AttentionMask(key_mask, True)).output.dtype == torch.float64
        )
    torch.testing.assert_close(with_attn_mask, mechanism(q, k, v, AttentionMask(key_mask, True)).output)
    assert sum("no fused attention: " in record.message for record in caplog.records) == 3
    monkeypatch.setenv("RELUMT_KERNELS", "fast")
    with pytest.raises(UserError, match="RELUMT_KERNELS is 'fast'; it must be one of auto, fused, reference"):
        mechanism(q, k, v, AttentionMask(key_mask, True))


@torch.no_grad()
def test_output_is_half_precision_unless_a_norm_follows(monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, key_mask = random_inputs(1, 2, 6, 6, 16, torch.float16, grad=False)
    for name, dtype in (("relu", torch.float16), ("rela_g", torch.float32)):
        assert MECHANISMS[name](2, 16).to(DEVICE).eval()(q, k, v, AttentionMask(key_mask, True)).output.dtype == dtype


@pytest.mark.parametrize("name", ["relu", "rela_g"])
def test_training_uses_the_same_kernel_with_and_without_gradients(name, monkeypatch):
    """Activation checkpointing runs twice, first without gradients, and both must drop the same weights."""
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, key_mask = random_inputs(1, 2, 6, 6, 16, torch.float16, grad=False)
    mechanism = MECHANISMS[name](2, 16, 0.5).to(DEVICE).train()
    outputs = []
    for enabled in (False, True):
        torch.manual_seed(1)
        with torch.set_grad_enabled(enabled):
            outputs.append(mechanism(q, k, v, AttentionMask(key_mask, True)).output)
    assert torch.equal(*outputs)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "rela_g", "inhibitor"])
def test_changing_the_mask_before_the_backward_pass_raises(monkeypatch, name):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, key_mask = random_inputs(1, 1, 3, 4, 16)
    output = MECHANISMS[name](1, 16).to(DEVICE)(q, k, v, AttentionMask(key_mask)).output
    key_mask.logical_not_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
