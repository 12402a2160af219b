"""The pointwise Triton kernels against PyTorch in float64: on a GPU, or interpreted with small sizes."""

import functools

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import pointwise_operator
from relumt.attention.kernels.library import draw_seed
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS, LaunchConfig
from relumt.attention.kernels.pointwise_params import POWERS_OF_RELU, PointwiseParams, exponent
from relumt.errors import UserError
from tests.attention.philox import kept_pairs

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # tests/conftest.py turns on the interpreter
from relumt.attention.kernels import dispatch, pointwise_triton  # noqa: E402

BLOCKS = sorted({x[:2] for kinds in LAUNCH_CONFIGS.values() for configs in kinds.values() for x in configs.values()})
FAST_BLOCKS = {(16, 128), (32, 64), (128, 32)}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
attend = functools.partial(pointwise_operator.attend, kernel="pointwise_triton")
POINTWISE = sorted(name for name, spec in MECHANISMS.items() if spec(1, 16).pointwise_activation)


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
    bias = {"sigmoid": -n.log(), "relu": None, "relu2": None}.get(activation, torch.full((1, 1), 0.2, device=q.device))
    return PointwiseParams(activation, (q.shape[3] * n / 2).rsqrt(), bias)


def exact_attention(q, k, v, params, mask, dropout_mask=1.0):
    """Return the output and both row sums in float64."""
    B, _, T, _ = q.shape
    factor, bias = (
        0.0 if x is None else x.double().expand(B, T)[:, None, :, None] for x in (params.factor, params.bias)
    )
    scores = q @ k.transpose(-2, -1) * factor + bias
    weights = scores.sigmoid() if params.activation == "sigmoid" else scores.relu() ** exponent(params.activation)
    weights = weights.masked_fill(~mask.to_dense(T, k.shape[2], q.device), 0.0)
    return (weights * dropout_mask) @ v, weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)


def assert_close_in_norm(actual, expected, tolerance):
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


def with_gradients(outputs, inputs, grads):
    """Return the outputs and, given the gradients of the outputs, those of the inputs."""
    loss = sum((x * grad.to(x.dtype)).sum() for x, grad in zip(outputs, grads, strict=True))
    return [x.detach() for x in outputs] + list(torch.autograd.grad(loss, inputs))


def check_attention(inputs, params, mask, row_sums, dropout_p=0.0):
    """Check outputs, row stats and gradients against float64, with the weights dropped that Philox says."""
    dtype, kept = inputs[0].dtype, 1.0
    if dropout_p:
        torch.manual_seed(3)
        q, k, _ = inputs
        level = pointwise_triton.round_dropout(dropout_p) * 256
        kept = kept_pairs(*q.shape[:3], k.shape[2], level, draw_seed(q.device)).to(DEVICE) / (1 - level / 256)
    torch.manual_seed(3)
    results = attend(*inputs, params, mask.key_mask, mask.is_causal, dropout_p, row_sums, dtype)
    assert all(x is None for x in results[1 + row_sums :])
    outputs = results[: 1 + row_sums]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = exact_attention(*doubles, params, mask, kept)[: len(outputs)]
    generator = torch.Generator().manual_seed(1)  # of all gradients, so that those of the row sums differ
    grads = [torch.randn(x.shape, generator=generator).to(DEVICE, x.dtype) for x in outputs]
    expected = with_gradients(exact, doubles, [grad.double() for grad in grads])
    assert_close_in_norm(with_gradients(outputs, inputs, grads), expected, TOLERANCE[dtype])


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize(
    ("shape", "activation", "causal", "row_sums", "dtype"),
    [
        ((2, 2, 40, 40, 16), "relu", True, 2, torch.float32),
        ((2, 2, 40, 40, 16), "relu", True, 1, torch.float32),
        ((1, 1, 33, 70, 24), "sigmoid", False, 2, torch.float32),
        ((1, 2, 65, 33, 128), "sigmoid", True, 2, torch.float32),
        ((2, 1, 1, 5, 8), "relu", False, 2, torch.float32),
        *(((1, 1, 33, 40, 24), activation, True, 1, torch.float32) for activation in POWERS_OF_RELU[3::7]),
        *(((1, 2, 40, 33, 16), "relu2", causal, 0, dtype) for causal in (True, False) for dtype in TOLERANCE),
        ((1, 2, 40, 33, 16), "relu8", True, 2, torch.bfloat16),
        # Without a bias and row stats, factors multiply sums over keys, except in float16.
        *(((2, 1, 33, 40, 24), "relu", causal, 0, dtype) for causal in (True, False) for dtype in TOLERANCE),
        ((1, 2, 40, 40, 32), "sigmoid", True, 2, torch.float16),
        ((1, 1, 33, 40, 64), "relu", True, 2, torch.bfloat16),
    ],
    ids=str,
)  # fmt: skip
def test_outputs_row_stats_and_gradients(shape, activation, causal, row_sums, dtype):
    *inputs, key_mask = random_inputs(*shape, dtype)
    mask = AttentionMask(key_mask, causal)
    check_attention(inputs, make_params(activation, inputs[0], mask), mask, row_sums)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize(
    ("activation", "is_causal", "row_sums", "dtype", "dropout_p"),
    [
        ("relu", False, 0, torch.float32, 0.1),
        *(("relu", True, 0, dtype, 0.5) for dtype in TOLERANCE),
        ("relu", False, 2, torch.float16, 0.1),
        ("sigmoid", False, 2, torch.float32, 0.5),
        ("relu2", True, 0, torch.float32, 0.1),
        ("relu8", True, 1, torch.float32, 0.5),
    ],
    ids=str,
)
def test_dropout_is_the_same_in_both_directions_and_leaves_row_stats_alone(
    activation, is_causal, row_sums, dtype, dropout_p
):
    *inputs, key_mask = random_inputs(2, 2, 20, 34, 16, dtype)
    mask = AttentionMask(key_mask, is_causal)
    check_attention(inputs, make_params(activation, inputs[0], mask), mask, row_sums, dropout_p)


@pytest.mark.parametrize("row_sums", [0, 1])
def test_hidden_keys_have_no_weight_although_the_sigmoid_of_zero_is_one_half(row_sums):
    *inputs, key_mask = random_inputs(2, 1, 20, 34, 16)
    params = PointwiseParams("sigmoid", torch.full((1, 1), 0.3, device=DEVICE))
    check_attention(inputs, params, AttentionMask(key_mask), row_sums)


def test_one_factor_serves_all_sentences():
    *inputs, key_mask = random_inputs(2, 1, 20, 20, 16)
    params = PointwiseParams("relu", torch.full((1, 1), 0.3, device=DEVICE))
    check_attention(inputs, params, AttentionMask(key_mask), 0)


@pytest.mark.parametrize(
    "block", [pytest.param(x, marks=[] if x in FAST_BLOCKS else pytest.mark.slow) for x in BLOCKS], ids=str
)
def test_every_tile_size_drops_the_same_pairs(block, monkeypatch):
    monkeypatch.setattr(pointwise_triton, "table_config", lambda *call: LaunchConfig(*block, 4, 1))
    *inputs, key_mask = random_inputs(1, 1, 140, 150, 16)
    mask = AttentionMask(key_mask, True)
    check_attention(inputs, make_params("relu", inputs[0], mask), mask, 0, 0.3)


def test_float16_weights_beyond_its_range_are_in_range_with_their_factors():
    q, k = (torch.full((1, 1, 3, 16), value, dtype=torch.float16, device=DEVICE) for value in (300.0, 200.0))
    v = torch.eye(16, dtype=torch.float16, device=DEVICE)[None, None, :3]
    params = PointwiseParams("relu", torch.full((1, 1), 1e-3, device=DEVICE))
    output = attend(q, k, v, params, None, False, 0.0, 0, torch.float16)[0]
    torch.testing.assert_close(output[..., :3], torch.full_like(output[..., :3], 960.0))


@pytest.mark.parametrize("name", ["relu", "sigmoid"])
def test_dropout_of_everything_gives_zero_and_finite_gradients(name, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, key_mask = random_inputs(2, 2, 9, 9, 16)
    mechanism = MECHANISMS[name](2, 16, dropout=1.0).to(DEVICE).train()
    output = mechanism(q, k, v, AttentionMask(key_mask), Need.NOTHING).output
    gradients = torch.autograd.grad(output.sum(), (q, k, v))
    assert output.eq(0).all() and all(x.isfinite().all() for x in gradients)


def test_every_output_is_written_and_null_rows_are_zero(monkeypatch):
    q, k, v, key_mask = random_inputs(2, 1, 33, 33, 24)
    key_mask[1] = False
    params = make_params("relu", q, AttentionMask(key_mask, True))

    def poisoned(original):
        def make_poisoned(*args, **kwargs):
            tensor = original(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return make_poisoned

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    outputs = attend(q, k, v, params, key_mask, True, 0.0, 2, torch.float32)
    gradients = torch.autograd.grad(outputs[0].sum() + outputs[1].sum(), (q, k, v))
    assert all(x.isfinite().all() for x in (*outputs, *gradients))
    assert all(x[1].eq(0).all() for x in (*outputs, *gradients)) and outputs[0][0, :, :11].eq(0).all()


@pytest.mark.parametrize("name", POINTWISE)
def test_every_pointwise_mechanism_uses_the_kernels(name, monkeypatch):
    q, k, v, key_mask = random_inputs(2, 2, 9, 14, 16, grad=False)
    mask = AttentionMask(key_mask, True)
    mechanism = MECHANISMS[name](2, 16).to(DEVICE)
    calls = []
    run_forward = pointwise_triton.run_forward
    monkeypatch.setattr(pointwise_triton, "run_forward", lambda *a: calls.append(1) or run_forward(*a))
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
    with pytest.raises(UserError, match="is 'fast'; it must be one of auto, experimental, fused, reference"):
        mechanism(q, k, v, AttentionMask(key_mask, True))


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
