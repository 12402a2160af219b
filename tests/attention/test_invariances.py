"""What must hold for every mechanism: parametrised over the registry, so that a new row is tested by being there."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need, cast_saturating
from tests.attention.cases import cases

every_mechanism = pytest.mark.parametrize("name", sorted(MECHANISMS))
HALF = [torch.float16, torch.bfloat16]


def attend(name, case, need=Need.NOTHING):
    return MECHANISMS[name](case.H, case.D)(case.q, case.k, case.v, case.mask, need)


@every_mechanism
@given(case=cases(dtype=torch.float32))
def test_what_is_wanted_changes_no_value(name, case):
    plain, full = attend(name, case), attend(name, case, Need.WEIGHTS | Need.ROW_STATS)
    assert plain.weights is None
    assert plain.row_stats is None
    torch.testing.assert_close(plain.output, full.output, rtol=1e-5, atol=1e-5)


@every_mechanism
@given(case=cases(dtype=torch.float32))
def test_a_step_of_incremental_decoding_is_a_row_of_the_causal_pass(name, case):
    S = case.k.shape[2]
    square = dataclasses.replace(case, q=case.k.flip(-1), mask=AttentionMask(is_causal=True))
    full = attend(name, square).output
    for i in range(S):
        prefix = slice(0, i + 1)
        step = dataclasses.replace(
            square, q=square.q[:, :, i : i + 1], k=case.k[:, :, prefix], v=case.v[:, :, prefix], mask=AttentionMask()
        )
        torch.testing.assert_close(attend(name, step).output[:, :, 0], full[:, :, i], rtol=1e-5, atol=1e-5)


@every_mechanism
@given(case=cases(dtype=torch.float32), padding=st.integers(1, 4))
def test_padding_changes_nothing(name, case, padding):
    plain = dataclasses.replace(case, mask=AttentionMask())
    B, _, S, _ = case.k.shape
    keys = torch.ones(B, S + padding, dtype=torch.bool)
    keys[:, :padding] = False

    def padded(x):
        return torch.cat([torch.full_like(x[:, :, :1], 7.0).expand(-1, -1, padding, -1), x], dim=2)

    longer = dataclasses.replace(case, k=padded(case.k), v=padded(case.v), mask=AttentionMask(keys))
    torch.testing.assert_close(attend(name, longer).output, attend(name, plain).output, rtol=1e-5, atol=1e-5)


@every_mechanism
@given(case=cases(dtype=torch.float32))
def test_batch_neighbours_change_nothing(name, case):
    together = attend(name, case).output
    for b in range(case.q.shape[0]):
        keys = None if case.mask.key_mask is None else case.mask.key_mask[b : b + 1]
        one = slice(b, b + 1)
        alone = dataclasses.replace(
            case, q=case.q[one], k=case.k[one], v=case.v[one], mask=dataclasses.replace(case.mask, key_mask=keys)
        )
        torch.testing.assert_close(attend(name, alone).output, together[one], rtol=1e-5, atol=1e-5)


@every_mechanism
@pytest.mark.parametrize("mask", [AttentionMask(), AttentionMask(is_causal=True)], ids=["everything", "causal"])
def test_gradients_are_those_of_the_function(name, mask):
    seeded = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 2, 4, 3, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mechanism = MECHANISMS[name](2, 3).double()

    def mixed_and_statistics(q, k, v):
        result = mechanism(q, k, v, mask, Need.ROW_STATS)
        rows = result.row_stats
        return (result.output, *([] if rows is None else [rows.log_weight_sum, rows.entropy]))

    assert torch.autograd.gradcheck(lambda *qkv: mechanism(*qkv, mask).output, (q, k, v))
    assert torch.autograd.gradcheck(mixed_and_statistics, (q, k, v))


@every_mechanism
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS, Need.WEIGHTS])
@given(case=cases(dtype=torch.float32, longest=2))
def test_rows_that_see_nothing_or_one_key_are_finite(name, need, case):
    q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))
    result = MECHANISMS[name](case.H, case.D)(q, k, v, case.mask, need)
    blind = ~case.seen.any(-1).squeeze(1)
    assert torch.all(result.output.transpose(1, 2)[blind] == 0)
    loss = result.output.sum()
    if result.row_stats is not None:
        loss = loss + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.abs().sum()
    loss.backward()
    for tensor in (result.output, q.grad, k.grad, v.grad):
        assert tensor.isfinite().all()


@every_mechanism
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e2, 1e4])
@given(seed=st.integers(0, 2**32))
def test_half_precision_is_the_float32_result_wherever_it_can_be_held(name, dtype, size, seed):
    seeded = torch.Generator().manual_seed(seed)
    near, other, v = (torch.rand(2, 2, 5, 8, generator=seeded) * 2 - 1 for _ in range(3))
    # Near each other, or every pair of an Inhibitor's would be too far apart to give anything.
    q, k, v = (x.mul(size).to(dtype).requires_grad_() for x in (near, near + other / 10, v))
    mechanism = MECHANISMS[name](2, 8)
    mixed = cast_saturating(mechanism(q, k, v, AttentionMask(is_causal=True)).output, dtype)
    mixed.float().sum().backward()
    for tensor in (mixed, q.grad, k.grad, v.grad):
        assert not tensor.isnan().any()

    exact = mechanism(q.detach().float(), k.detach().float(), v.detach().float(), AttentionMask(is_causal=True)).output
    assert exact.ne(0).double().mean() > 0.1
    held = exact.abs() <= torch.finfo(dtype).max
    one_unit = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        mixed.detach().float()[held], exact[held], rtol=one_unit, atol=one_unit * float(v.detach().abs().max())
    )


@every_mechanism
@given(case=cases(dtype=torch.float32))
def test_weights_are_zero_where_nothing_may_be_seen_and_statistics_are_theirs(name, case):
    result = attend(name, case, Need.WEIGHTS | Need.ROW_STATS)
    if result.weights is None:
        pytest.skip(f"{name} has no weights")
    assert torch.all(result.weights.masked_select(~case.seen) == 0)
    if result.row_stats is None:
        assert MECHANISMS[name](1, 1).has_negative_weights
    else:
        torch.testing.assert_close(result.row_stats.weight_sum, result.weights.sum(-1))


@every_mechanism
@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_dropout_drops_while_training_and_where_it_is_retained(name, probability):
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 6, 4).expand(2000, -1, -1, -1) / 5 for _ in range(3))
    mechanism = MECHANISMS[name](2, 4, probability)
    whole = mechanism.eval()(q, k, v, AttentionMask()).output[0]
    expected = whole if probability < 1 else torch.zeros_like(whole)
    for retained in (False, True):
        mechanism.train(not retained).retain_dropout = retained
        dropped = mechanism(q, k, v, AttentionMask()).output
        assert not torch.equal(dropped[0], whole)
        torch.testing.assert_close(dropped.mean(0), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("relu", {"scale": "AttentionMask"}, "--relu-scale must be one of visible, none, not 'AttentionMask'"),
        ("inhibitor", {"implementation": "cuda"}, "--inhibitor-implementation must be one of fused, cdist, naive, not"),
    ],
)
def test_a_value_that_an_option_does_not_have_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        MECHANISMS[name](2, 4, **options)


@pytest.mark.parametrize("name", ["softmax", "relu", "inhibitor"])
def test_code_that_is_compiled_can_attend(name):
    q, k, v = (torch.randn(1, 2, 6, 4) / 5 for _ in range(3))
    mechanism = MECHANISMS[name](2, 4)
    compiled = torch.compile(mechanism, backend="eager")
    torch.testing.assert_close(compiled(q, k, v, AttentionMask()).output, mechanism(q, k, v, AttentionMask()).output)


@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_of_nothing_comes_nothing(name, causal, sizes):
    B, T, S = sizes
    q, k = (torch.randn(B, 2, n, 4, requires_grad=True) for n in (T, S))
    for keys in (None, torch.ones(B, S, dtype=torch.bool)):
        mixed = MECHANISMS[name](2, 4)(q, k, k, AttentionMask(keys, causal)).output
        assert mixed.shape == (B, 2, T, 4) and mixed.eq(0).all()
        mixed.sum().backward()


@pytest.mark.parametrize("name", [name for name in sorted(MECHANISMS) if MECHANISMS[name](1, 4).has_weights])
def test_it_compiles_as_a_whole(name):
    mechanism = MECHANISMS[name](2, 4)
    q, k = (torch.randn(2, 2, n, 4) for n in (3, 5))
    keys = torch.arange(5)[None] < torch.tensor([[5], [3]])
    compiled = torch.compile(
        lambda *qkv: mechanism(*qkv, AttentionMask(keys)).output, backend="aot_eager", fullgraph=True, dynamic=False
    )
    with torch._dynamo.config.patch(recompile_limit=len(MECHANISMS)):  # the code is one, the mechanisms are many
        torch.testing.assert_close(compiled(q, k, k), mechanism(q, k, k, AttentionMask(keys)).output)
