"""The fused kernels of pointwise weights against PyTorch in float64: on a GPU, or interpreted on the CPU, in small."""

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels.pointwise_params import PointwiseParams

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # where tests/conftest.py has Triton interpret
from relumt.attention.kernels import dispatch, pointwise_triton  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
POINTWISE = sorted(name for name, row in MECHANISMS.items() if row(1, 16).pointwise)
SHAPES = [(2, 2, 70, 70, 16), (1, 1, 33, 90, 24), (2, 1, 1, 5, 8), (1, 2, 65, 40, 128)]


def problem(B, H, T, S, D, dtype=torch.float32, grad=True):
    # Of these seeds none gives a score so near 0 that float32 has it on the other side of ReLU's corner.
    seeded = torch.Generator().manual_seed(B + T + S + D + 1)
    q, k, v = (torch.randn(B, H, n, D, generator=seeded).to(DEVICE, dtype).requires_grad_(grad) for n in (T, S, S))
    keys = torch.rand(B, S, generator=seeded) > 0.3
    keys[0, : S // 3] = False  # with a causal mask its first queries see nothing
    keys[-1, S - S // 3 :] = False
    return q, k, v, keys.to(DEVICE)


def rows_for(activation, q, mask):
    n = mask.num_visible(q.shape[2], mask.key_mask.shape[1], torch.empty(0, device=q.device))[:, 0, :, 0]
    return PointwiseParams(activation, (q.shape[3] * n / 2).rsqrt(), -n.log() if activation == "sigmoid" else None)


def exact(q, k, v, rows, mask, kept=1.0):
    """Mixed values and both statistics in float64."""
    B, _, T, _ = q.shape
    factor, bias = (0.0 if x is None else x.double().expand(B, T)[:, None, :, None] for x in (rows.factor, rows.bias))
    scores = q @ k.transpose(-2, -1) * factor + bias
    weights = scores.relu() if rows.activation == "relu" else scores.sigmoid()
    weights = weights.masked_fill(~mask.to_dense(T, k.shape[2], q.device), 0.0)
    return (weights * kept) @ v, weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)


def compare(ours, theirs, tolerance):
    for one, other in zip(ours, theirs, strict=True):
        assert (one.double() - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("size", [8, 32])
def test_values_of_another_size_than_keys_go_to_the_reference(size, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, _, keys = problem(1, 1, 5, 6, 16, grad=False)
    v = torch.randn(1, 1, 6, size, device=DEVICE)
    mixed = MECHANISMS["relu"](1, 16)(q, k, v, AttentionMask(keys)).output
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    torch.testing.assert_close(mixed, MECHANISMS["relu"](1, 16)(q, k, v, AttentionMask(keys)).output)


def with_gradients(outputs, inputs, weights):
    return [x.detach() for x in outputs] + list(
        torch.autograd.grad(sum((x * w.to(x.dtype)).sum() for x, w in zip(outputs, weights, strict=True)), inputs)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_values_statistics_and_gradients(shape, causal, activation):
    q, k, v, keys = problem(*shape)
    mask = AttentionMask(keys, causal)
    rows = rows_for(activation, q, mask)
    outputs = pointwise_triton.attend(q, k, v, rows, keys, causal, 0.0, True, torch.float32)
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    theirs = with_gradients(exact(*doubles, rows, mask), doubles, weights)
    compare(with_gradients(outputs, (q, k, v), weights), theirs, TOLERANCE[torch.float32])


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("shape", [(1, 2, 70, 70, 32), (2, 1, 33, 90, 64)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(shape, activation, dtype):
    q, k, v, keys = problem(*shape, dtype)
    mask = AttentionMask(keys, True)
    rows = rows_for(activation, q, mask)
    outputs = pointwise_triton.attend(q, k, v, rows, keys, True, 0.0, True, dtype)
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    rounded = [w.to(x.dtype).double() for x, w in zip(outputs, weights, strict=True)]
    theirs = with_gradients(exact(*doubles, rows, mask), doubles, rounded)
    compare(with_gradients(outputs, (q, k, v), weights), theirs, TOLERANCE[dtype])


def test_dropout_is_the_same_in_both_directions_and_spares_the_statistics():
    T, S = 70, 48
    q, k, _, keys = problem(2, 2, T, S, S)
    v = torch.eye(S, device=DEVICE).repeat(2, 2, 1, 1).requires_grad_()  # so that what is mixed are the weights
    mask = AttentionMask(keys, False)
    rows = rows_for("sigmoid", q, mask)
    torch.manual_seed(5)
    outputs = pointwise_triton.attend(q, k, v, rows, keys, False, 0.3, True, torch.float32)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    whole = exact(*doubles, rows, mask)[0]
    kept = (outputs[0] != 0).double() / 0.7
    seen = (whole != 0).expand_as(kept)
    assert 0.6 < (kept[seen] > 0).double().mean() < 0.8
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) for x in outputs]
    theirs = with_gradients(exact(*doubles, rows, mask, kept.detach()), doubles, weights)
    compare(with_gradients(outputs, (q, k, v), weights), theirs, TOLERANCE[torch.float32])
    torch.manual_seed(5)
    assert torch.equal(pointwise_triton.attend(q, k, v, rows, keys, False, 0.3, False, torch.float32)[0], outputs[0])


def test_every_output_is_written_and_null_rows_are_0(monkeypatch):
    q, k, v, keys = problem(2, 1, 65, 65, 24)
    keys[1] = False
    rows = rows_for("relu", q, AttentionMask(keys, True))

    def poisoned(original):
        def make(*args, **kwargs):
            made = original(*args, **kwargs)
            return made.fill_(float("nan")) if made.is_floating_point() else made

        return make

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    outputs = pointwise_triton.attend(q, k, v, rows, keys, True, 0.0, True, torch.float32)
    gradients = torch.autograd.grad(outputs[0].sum() + outputs[1].sum(), (q, k, v))
    assert all(x.isfinite().all() for x in (*outputs, *gradients))
    assert all(x[1].eq(0).all() for x in (*outputs, *gradients)) and outputs[0][0, :, :21].eq(0).all()


def test_gradcheck_in_float32():
    q, k, v, keys = problem(1, 1, 3, 5, 4)
    mask = AttentionMask(torch.ones_like(keys), True)
    rows = rows_for("sigmoid", q, mask)

    def attend(q, k, v):
        return pointwise_triton.attend(q, k, v, rows, mask.key_mask, True, 0.0, True, torch.float32)

    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(attend, (q, k, v), eps=1e-2, atol=2e-3, rtol=1e-2)


@pytest.mark.parametrize("name", POINTWISE)
def test_every_pointwise_mechanism_is_served(name, monkeypatch):
    q, k, v, keys = problem(2, 2, 20, 20, 16, grad=False)
    mask = AttentionMask(keys, True)
    mechanism = MECHANISMS[name](2, 16).to(DEVICE)
    served = []
    attend = pointwise_triton.attend
    monkeypatch.setattr(pointwise_triton, "attend", lambda *a: served.append(1) or attend(*a))
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    fused = mechanism(q, k, v, mask, Need.ROW_STATS)
    assert served
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    plain = mechanism(q.double(), k.double(), v.double(), mask, Need.ROW_STATS)
    assert len(served) == 1
    ours = (
        fused.output,
        fused.row_stats.weight_sum,
        fused.row_stats.weight_log_weight_sum,
        fused.row_stats.num_keys.float(),
    )
    theirs = (
        plain.output,
        plain.row_stats.weight_sum,
        plain.row_stats.weight_log_weight_sum,
        plain.row_stats.num_keys.double(),
    )
    compare(ours, theirs, TOLERANCE[torch.float32])


def test_what_a_kernel_cannot_do_goes_to_the_reference_and_is_said_once(monkeypatch, caplog):
    q, k, v, keys = problem(1, 1, 6, 6, 16, grad=False)
    mechanism = MECHANISMS["relu"](1, 16).to(DEVICE)
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    dispatch._warn_once.cache_clear()
    pairs = torch.ones(6, 6, dtype=torch.bool, device=DEVICE).tril()
    for _ in range(2):
        by_pairs = mechanism(q, k, v, AttentionMask(keys, attn_mask=pairs)).output
        assert mechanism(q, k, v, AttentionMask(keys, True), Need.WEIGHTS).weights is not None
        assert mechanism(q.double(), k.double(), v.double(), AttentionMask(keys, True)).output.dtype == torch.float64
    torch.testing.assert_close(by_pairs, mechanism(q, k, v, AttentionMask(keys, True)).output)
    assert sum("no fused attention: " in record.message for record in caplog.records) == 3
    monkeypatch.setenv("RELUMT_KERNELS", "fast")
    with pytest.raises(ValueError, match="RELUMT_KERNELS is 'fast'; it must be one of auto, fused, reference"):
        mechanism(q, k, v, AttentionMask(keys, True))


@torch.no_grad()
def test_mixed_is_in_half_unless_a_norm_follows(monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, keys = problem(1, 2, 6, 6, 16, torch.float16, grad=False)
    for name, dtype in (("relu", torch.float16), ("rela_g", torch.float32)):
        assert MECHANISMS[name](2, 16).to(DEVICE).eval()(q, k, v, AttentionMask(keys, True)).output.dtype == dtype


@pytest.mark.parametrize("name", ["relu", "rela_g"])
def test_gradients_do_not_decide_who_serves_training(name, monkeypatch):
    """Activation checkpointing asks twice, first without gradients, and both must drop the same weights."""
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    q, k, v, keys = problem(1, 2, 6, 6, 16, torch.float16, grad=False)
    mechanism = MECHANISMS[name](2, 16, 0.5).to(DEVICE).train()
    mixed = []
    for enabled in (False, True):
        torch.manual_seed(1)
        with torch.set_grad_enabled(enabled):
            mixed.append(mechanism(q, k, v, AttentionMask(keys, True)).output)
    assert torch.equal(*mixed)
