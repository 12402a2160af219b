"""What must hold for every mechanism. The tests run over the registry: a new mechanism needs no test of its own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need, cast_saturating
from tests.attention.cases import cases, distinct_attentions, for_each_mechanism

every_mechanism = pytest.mark.parametrize("name", sorted(MECHANISMS))
every_attention = pytest.mark.parametrize("name", distinct_attentions())
"""For what the norm of the heads does not take part in."""


def attend(name, case, need=Need.NOTHING):
    return MECHANISMS[name](case.H, case.D)(case.q, case.k, case.v, case.mask, need)


@every_mechanism
@given(case=cases(dtype=torch.float32))
@for_each_mechanism
def test_needing_more_changes_no_output_and_weights_are_zero_at_hidden_keys(name, case):
    output_only, everything = attend(name, case), attend(name, case, Need.WEIGHTS | Need.ROW_STATS)
    assert output_only.weights is None
    assert output_only.row_stats is None
    torch.testing.assert_close(output_only.output, everything.output, rtol=1e-5, atol=1e-5)
    mechanism = MECHANISMS[name](1, 1)
    assert (everything.weights is not None) == mechanism.has_weights
    assert (everything.row_stats is not None) == (mechanism.has_weights and not mechanism.has_negative_weights)
    if everything.weights is not None:
        assert torch.all(everything.weights.masked_select(~case.visible) == 0)
    if everything.row_stats is not None:
        torch.testing.assert_close(everything.row_stats.weight_sum, everything.weights.sum(-1))


@every_attention
@given(case=cases(), seed=st.integers(0, 2**32))
@for_each_mechanism
def test_a_head_is_attention_by_itself_with_its_own_parameters(name, case, seed):
    flags = MECHANISMS[name].flags()
    options = {option.name: True for _, option in flags if option.type is bool}  # such as --inhibitor-learn
    mechanism = MECHANISMS[name](case.H, case.D, **options).double()
    parameters = {key: p for key, p in mechanism.named_parameters() if not key.startswith("norm.")}
    seeded = torch.Generator().manual_seed(seed)
    for parameter in parameters.values():
        parameter.data = torch.randn(parameter.shape, generator=seeded, dtype=torch.float64) / 2
    output = mechanism(case.q, case.k, case.v, case.mask).output
    for h in range(case.H):
        head = slice(h, h + 1)
        alone = MECHANISMS[name](1, case.D, **options).double()
        alone.load_state_dict({key: parameter[head] for key, parameter in parameters.items()}, strict=False)
        found = alone(case.q[:, head], case.k[:, head], case.v[:, head], case.mask).output
        torch.testing.assert_close(found, output[:, head], rtol=1e-9, atol=1e-9)


@every_attention
def test_gradients_are_those_of_the_function(name):
    seeded = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 2, 3, 2, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = AttentionMask(torch.tensor([[True, True, True], [True, True, False]]), is_causal=True)
    mechanism = MECHANISMS[name](2, 2).double()

    def outputs_and_statistics(q, k, v):
        result = mechanism(q, k, v, mask, Need.ROW_STATS)
        stats = result.row_stats
        # The output alone may come from another path than the output with statistics: that of softmax is fused.
        alone = mechanism(q, k, v, mask).output if name in ("softmax", "ssmax") else None
        values = (result.output, alone, stats and stats.log_weight_sum, stats and stats.entropy)
        return tuple(value for value in values if value is not None)

    assert torch.autograd.gradcheck(outputs_and_statistics, (q, k, v))


@every_mechanism
@given(case=cases(dtype=torch.float32, longest=2), need=st.sampled_from([Need.NOTHING, Need.ROW_STATS | Need.WEIGHTS]))
@for_each_mechanism
def test_queries_with_no_or_one_visible_key_are_finite(name, need, case):
    q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))
    result = MECHANISMS[name](case.H, case.D)(q, k, v, case.mask, need)
    sees_nothing = ~case.visible.any(-1).squeeze(1)
    assert torch.all(result.output.transpose(1, 2)[sees_nothing] == 0)
    loss = result.output.sum()
    if result.row_stats is not None:
        loss = loss + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.abs().sum()
    loss.backward()
    for tensor in (result.output, q.grad, k.grad, v.grad):
        assert tensor.isfinite().all()


@every_attention
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_half_precision_is_the_float32_result_wherever_it_is_in_range(name, dtype, size):
    seeded = torch.Generator().manual_seed(1)
    near, other, v = (torch.rand(2, 2, 5, 8, generator=seeded) * 2 - 1 for _ in range(3))
    # Keys are near queries, because at larger distances the Inhibitor's output would be 0.
    q, k, v = (x.mul(size).to(dtype).requires_grad_() for x in (near, near + other / 10, v))
    mechanism = MECHANISMS[name](2, 8)
    output = cast_saturating(mechanism(q, k, v, AttentionMask(is_causal=True)).output, dtype)
    output.float().sum().backward()
    for tensor in (output, q.grad, k.grad, v.grad):
        assert not tensor.isnan().any()

    exact = mechanism(q.detach().float(), k.detach().float(), v.detach().float(), AttentionMask(is_causal=True)).output
    is_null = name == "elastic_softmax" and size < 1  # rows of nearly equal scores have weights of nearly 0
    assert is_null or exact.ne(0).double().mean() > 0.1
    in_range = exact.abs() <= torch.finfo(dtype).max
    one_unit = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        output.detach().float()[in_range], exact[in_range], rtol=one_unit, atol=one_unit * float(v.detach().abs().max())
    )


@every_attention
@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_dropout_drops_in_training_and_where_it_is_retained(name, probability):
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 6, 4).expand(2000, -1, -1, -1) for _ in range(3))
    mechanism = MECHANISMS[name](2, 4, probability)
    without_dropout = mechanism.eval()(q, k, v, AttentionMask()).output[0]
    expected = without_dropout if probability < 1 else torch.zeros_like(without_dropout)
    for retained in (False, True):
        mechanism.train(not retained).retain_dropout = retained
        dropped = mechanism(q, k, v, AttentionMask()).output
        assert not torch.equal(dropped[0], without_dropout)
        assert (dropped.mean(0) - expected).norm() <= 0.1 * expected.norm()


@pytest.mark.parametrize("name", [name for name in sorted(MECHANISMS) if MECHANISMS[name](1, 4).has_weights])
@pytest.mark.parametrize("need", [Need.ROW_STATS, Need.ROW_STATS | Need.WEIGHTS])
def test_weights_and_statistics_are_those_before_dropout(name, need):
    q, k, v = (torch.randn(2, 2, 6, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    mechanism, mask = MECHANISMS[name](2, 4, dropout=0.5), AttentionMask(is_causal=True)
    found, expected = (mechanism.train(training)(q, k, v, mask, need) for training in (True, False))
    assert not torch.equal(found.output, expected.output)
    assert (found.weights is None) == (expected.weights is None) == (Need.WEIGHTS not in need)
    if found.weights is not None:
        torch.testing.assert_close(found.weights, expected.weights)
    if not mechanism.has_negative_weights:
        torch.testing.assert_close(vars(found.row_stats), vars(expected.row_stats))


@every_attention
def test_a_nan_reaches_the_output_of_its_query_and_no_other(name):
    """Otherwise training would go on although it has diverged.

    Weights are asked for, because PyTorch's fused softmax returns 0 for such a query if there are only a few keys.
    """
    q, k, v = (torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    q[0, 1, 2, 0] = torch.nan
    is_nan = MECHANISMS[name](2, 4)(q, k, v, AttentionMask(), Need.WEIGHTS).output.isnan()
    assert is_nan[0, 1, 2].all() and is_nan.sum() == 4


@pytest.mark.parametrize(
    ("name", "sizes", "options", "message"),
    [
        ("relu", (2, 4, 1.5), {}, "attention dropout must be between 0 and 1, not 1.5"),
        ("inhibitor", (0, 4), {}, "at least one head of at least one dimension, not 0×4"),
        ("relu", (2, 4), {"scale": "length"}, "--relu-scale must be one of visible, none, not 'length'"),
        ("relu", (2, 4), {"gamma": 0.0}, "--relu-gamma must be a number from 1e-06 to 1e\\+06, not 0.0"),
        ("inhibitor", (2, 4), {"initial_distance": -1.0}, "--inhibitor-initial-distance must be a number from 0 to"),
    ],
)
def test_impossible_sizes_and_options_are_refused(name, sizes, options, message):
    with pytest.raises(ValueError, match=message):
        MECHANISMS[name](*sizes, **options)


@every_attention
@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty_batches_queries_and_keys_give_zeros(name, is_causal, sizes):
    B, T, S = sizes
    q, k = (torch.randn(B, 2, n, 4, requires_grad=True) for n in (T, S))
    for key_mask in (None, torch.ones(B, S, dtype=torch.bool)):
        output = MECHANISMS[name](2, 4)(q, k, k, AttentionMask(key_mask, is_causal)).output
        assert output.shape == (B, 2, T, 4) and output.eq(0).all()
        output.sum().backward()


@pytest.mark.parametrize("name", ["entmax15", "entmax_learned"])
def test_second_derivatives_that_would_be_wrong_are_refused(name):
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    output = MECHANISMS[name](2, 4)(q, q, q, AttentionMask()).output.sum()
    with pytest.raises(RuntimeError, match=r"has no second derivatives \(create_graph=True\); use sparsemax with"):
        torch.autograd.grad(output, q, create_graph=True)


def test_second_derivatives_of_learned_entmax_are_those_of_forward_over_reverse_mode():
    q, k, v = torch.randn(3, 1, 1, 4, 3, dtype=torch.float64)
    mechanism = MECHANISMS["entmax_learned"](1, 3).double()

    def loss(first_query):
        queries = torch.cat([first_query[None, None, None], q[:, :, 1:]], 2)
        return mechanism(queries, k, v, AttentionMask()).output.square().sum()

    x, step = q[0, 0, 0], 1e-5
    gradients = [
        torch.func.grad(loss)(x + sign * step * unit) for unit in torch.eye(3, dtype=torch.float64) for sign in (1, -1)
    ]
    differences = torch.stack(
        [(up - down) / (2 * step) for up, down in zip(gradients[::2], gradients[1::2], strict=True)]
    )
    torch.testing.assert_close(torch.func.hessian(loss)(x), differences, rtol=1e-4, atol=1e-6)
    for reverse_over_reverse in (torch.func.jacrev(torch.func.jacrev(loss)), torch.func.jacrev(torch.func.grad(loss))):
        with pytest.raises(RuntimeError, match=r"by reverse mode alone; use torch\.func\.hessian"):
            reverse_over_reverse(x)
