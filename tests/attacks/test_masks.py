"""Attention modules in plain PyTorch: tensors and masks of other shapes, padding that is not finite, modes and copies.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

import copy
import io
import math

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask, Need, RowStats
from relumt.errors import UserError
from relumt.kernel_setting import VARIABLE
from tests.attacks.test_numerics import kernels

pytestmark = pytest.mark.attack("numerics")

B, H, T, S, D = 2, 3, 4, 5, 6
every_mechanism = pytest.mark.parametrize("name", sorted(MECHANISMS))
GARBAGE = (math.inf, -math.inf, math.nan)


def build_mechanism(name, dropout=0.0):
    """Build a mechanism; the Inhibitor by its equation, because compiling takes seconds."""
    options = {"implementation": "naive"} if "inhibitor" in name else {}
    return MECHANISMS[name](H, D, dropout, **options)


def random_qkv(dtype=torch.float32, requires_grad=False):
    """Return q [B, H, T, D], k and v [B, H, S, D]."""
    seeded = torch.Generator().manual_seed(1)
    return [torch.randn(B, H, n, D, generator=seeded).to(dtype).requires_grad_(requires_grad) for n in (T, S, S)]


def refuse(attack, function, *arguments, **options):
    """Return the message of the ValueError or TypeError that a call ends with."""
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    attack.outcomes.append("refused")
    return str(caught.value)


WRONG_SHAPES = {
    "keys of another batch": ((B, H, T, D), (1, H, S, D), (1, H, S, D)),
    "queries of another batch": ((1, H, T, D), (B, H, S, D), (B, H, S, D)),
    "values of another batch": ((B, H, T, D), (B, H, S, D), (1, H, S, D)),
    "fewer values than keys": ((B, H, T, D), (B, H, S, D), (B, H, S - 1, D)),
    "one value": ((B, H, T, D), (B, H, S, D), (B, H, 1, D)),
    "one key": ((B, H, T, D), (B, H, 1, D), (B, H, S, D)),
    "more values than keys": ((B, H, T, D), (B, H, S, D), (B, H, S + 1, D)),
    "no values": ((B, H, T, D), (B, H, S, D), (B, H, 0, D)),
    "one head of keys": ((B, H, T, D), (B, 1, S, D), (B, 1, S, D)),
    "one head of values": ((B, H, T, D), (B, H, S, D), (B, 1, S, D)),
    "other number of heads": ((B, H + 1, T, D), (B, H + 1, S, D), (B, H + 1, S, D)),
    "one head": ((B, 1, T, D), (B, 1, S, D), (B, 1, S, D)),
    "other head size": ((B, H, T, D + 1), (B, H, S, D + 1), (B, H, S, D + 1)),
    "keys of another head size": ((B, H, T, D), (B, H, S, 1), (B, H, S, D)),
    "queries without heads": ((B, T, D), (B, H, S, D), (B, H, S, D)),
    "everything without heads": ((B, T, D), (B, S, D), (B, S, D)),
    "five dimensions": ((1, B, H, T, D), (1, B, H, S, D), (1, B, H, S, D)),
    "scalars": ((), (), ()),
}


@every_mechanism
def test_tensors_of_other_shapes_are_refused(attack, name):
    for shapes in WRONG_SHAPES.values():
        message = refuse(attack, build_mechanism(name), *(torch.randn(shape) for shape in shapes), AttentionMask())
        assert all(str(list(shape)) in message for shape in shapes)


WRONG_MASKS = {
    "key_mask": [(B, 1), (1, S), (1, 1), (B, S + 1), (B, S - 1), (S, B), (B + 1, S), (B, 0), (0, S)],
    "attn_mask": [(T, 1), (1, S), (1, 1), (T, S + 1), (T + 1, S), (S, T), (T, 0), (0, S)],
}


@every_mechanism
@pytest.mark.parametrize("mask", WRONG_MASKS)
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS | Need.WEIGHTS])
def test_masks_are_never_broadcast(attack, name, mask, need):
    for shape in WRONG_MASKS[mask]:
        wrong = AttentionMask(**{mask: torch.ones(shape, dtype=torch.bool)})
        message = refuse(attack, build_mechanism(name), *random_qkv(), wrong, need)
        assert f"AttentionMask.{mask} must be" in message and str(list(shape)) in message


@pytest.mark.parametrize("mask", WRONG_MASKS)
@pytest.mark.parametrize(
    "wrong", [torch.ones(B, S), torch.ones(B, S).long(), torch.ones(B, S, 1).bool(), torch.ones(S).bool()]
)
def test_masks_of_other_types_are_refused(attack, mask, wrong):
    assert "torch.bool" in refuse(attack, AttentionMask, **{mask: wrong})


@every_mechanism
def test_impossible_modules_are_refused(attack, name):
    dropouts = [{"dropout": value} for value in (math.nan, math.inf, -0.1, 1.1)]
    for options in ({"num_heads": 0}, {"head_dim": 0}, {"num_heads": -1}, *dropouts):
        refuse(attack, MECHANISMS[name], **{"num_heads": H, "head_dim": D} | options)


@every_mechanism
@pytest.mark.parametrize("choice", ["reference", "auto"])
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS, Need.WEIGHTS])
def test_padding_that_is_not_finite_changes_no_bit(attack, name, choice, need):
    """Neither of the output nor of a gradient."""
    key_mask = torch.tensor([[True, False, True, True, False], [False, True, True, False, True]])

    def output_and_gradients(value, is_causal):
        q, k, v = random_qkv()
        k, v = (x.masked_fill(~key_mask[:, None, :, None], value) for x in (k, v))
        inputs = [x.requires_grad_() for x in (q, k, v)]
        torch.manual_seed(1)
        output = build_mechanism(name, dropout=0.3).train()(*inputs, AttentionMask(key_mask, is_causal), need).output
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    with kernels(choice):
        for is_causal in (False, True):
            clean = output_and_gradients(0.0, is_causal)
            for garbage in GARBAGE if need is Need.NOTHING else GARBAGE[-1:]:
                for expected, found in zip(clean, output_and_gradients(garbage, is_causal), strict=True):
                    assert found.isfinite().all() and torch.equal(expected, found)
                attack.outcomes.append("handled")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_zeroing_padding_is_differentiable_in_every_way(attack, dtype):
    mask = AttentionMask(torch.tensor([[True, False, True, True, False]] * B))
    x = random_qkv(dtype)[1].transpose(1, 2).contiguous().transpose(1, 2)
    expected = x * mask.key_mask[:, None, :, None]
    assert torch.equal(mask.zero_padding(x), expected)
    assert torch.equal(torch.func.vmap(lambda one: mask.zero_padding(one), 0)(x[None])[0], expected)
    value, tangent = torch.func.jvp(mask.zero_padding, (x,), (torch.ones_like(x),))
    assert torch.equal(value, expected) and torch.equal(tangent, mask.key_mask[:, None, :, None].expand_as(x).to(dtype))
    assert torch.equal(AttentionMask(mask.key_mask, padding_is_zero=True).zero_padding(x), x)
    attack.outcomes.append("handled")


@every_mechanism
def test_rows_without_keys_have_finite_statistics(attack, name):
    mechanism = build_mechanism(name)
    masks = [AttentionMask(torch.zeros(B, S).bool()), AttentionMask(attn_mask=torch.zeros(T, S).bool())]
    for mask in masks:
        inputs = random_qkv(requires_grad=True)
        result = mechanism(*inputs, mask, Need.ROW_STATS | Need.WEIGHTS)
        assert not result.output.any()
        loss = result.output.sum()
        if result.row_stats is not None:
            stats = result.row_stats
            assert stats.is_null.all() and not stats.entropy.any() and not stats.num_keys.any()
            loss = loss + stats.entropy.sum() + stats.log_weight_sum.sum()
        assert all(not gradient.any() for gradient in torch.autograd.grad(loss, inputs))
        attack.outcomes.append("handled")


@pytest.mark.parametrize("weight", [0.0, 1e-45, 1e-38, 1e-7, 1e-6, 1.0, 1e4, 1e30, 3e38])
def test_statistics_of_extreme_weights_are_finite(attack, weight):
    weights = torch.full((1, 1, 1, 1), weight, requires_grad=True)
    stats = RowStats.from_weights(weights, torch.ones(1, 1, 1))
    assert stats.log_weight_sum.isfinite().all() and stats.weight_sum.isfinite().all()
    if weight < 1e36:  # s·log s is out of range beyond
        (stats.entropy + stats.log_weight_sum).sum().backward()
        assert stats.entropy.isfinite().all() and weights.grad.isfinite().all()
    attack.outcomes.append("handled")


@every_mechanism
@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_extreme_dropout(attack, name, dropout):
    inputs = random_qkv(requires_grad=True)
    mechanism = build_mechanism(name, dropout)
    evaluated = mechanism.eval()(*inputs, AttentionMask()).output
    trained = mechanism.train()(*inputs, AttentionMask()).output
    assert torch.equal(trained, evaluated if dropout == 0 else torch.zeros_like(trained))
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(trained.sum(), inputs))
    attack.outcomes.append("handled")


def layouts(x):
    """Return x [B, H, N, D] with other strides."""
    yield x.transpose(1, 2).contiguous().transpose(1, 2)
    yield x.mT.contiguous().mT
    yield torch.stack([x, torch.full_like(x, math.nan)], -1)[..., 0]  # every second number
    yield x.flip(2).contiguous().flip(2)


@every_mechanism
@pytest.mark.parametrize("choice", ["reference", "auto"])
def test_strides_change_nothing(attack, name, choice):
    mask, mechanism = AttentionMask(torch.tensor([[True] * 5, [True] * 3 + [False] * 2]), True), build_mechanism(name)
    with kernels(choice):
        expected = mechanism(*random_qkv(), mask).output
        for inputs in zip(*(layouts(x) for x in random_qkv()), strict=True):
            torch.testing.assert_close(mechanism(*inputs, mask).output, expected, rtol=1e-5, atol=1e-6)
            attack.outcomes.append("handled")
        one = torch.randn(1, 1, 1, D).expand(B, H, S, D)  # stride 0
        torch.testing.assert_close(
            mechanism(one, one, one, mask).output, mechanism(*[one.contiguous()] * 3, mask).output, rtol=1e-5, atol=1e-6
        )


@every_mechanism
@pytest.mark.parametrize("choice", ["reference", "auto"])
def test_gradients_of_some_inputs_are_those_of_all(attack, name, choice):
    mechanism, mask = build_mechanism(name), AttentionMask(is_causal=True)
    with kernels(choice):
        every = random_qkv(requires_grad=True)
        expected = torch.autograd.grad(mechanism(*every, mask).output.square().sum(), every)
        for trained in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            some = [x.detach().requires_grad_(i in trained) for i, x in enumerate(every)]
            output = mechanism(*some, mask).output
            gradients = torch.autograd.grad(output.square().sum(), [some[i] for i in trained])
            torch.testing.assert_close(gradients, tuple(expected[i] for i in trained))
            attack.outcomes.append("handled")


@every_mechanism
def test_copies_and_pickles_compute_the_same(attack, name):
    mechanism, mask = build_mechanism(name), AttentionMask(torch.ones(B, S).bool(), is_causal=True)
    expected = mechanism(*random_qkv(), mask).output  # fills the mask's cache
    file = io.BytesIO()
    torch.save((mechanism, mask), file)
    file.seek(0)
    for module, same_mask in ((copy.deepcopy(mechanism), copy.deepcopy(mask)), torch.load(file, weights_only=False)):
        assert torch.equal(module(*random_qkv(), same_mask).output, expected)
        attack.outcomes.append("handled")


@every_mechanism
@pytest.mark.parametrize("choice", ["reference", "auto"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_beyond_half_precision_saturate(attack, name, choice, dtype):
    """Scores of 2e10 and values of 6e4 exceed what fp16 can hold, but not float32."""
    q, k, v = (torch.full((B, H, n, D), 6e4, dtype=dtype, requires_grad=True) for n in (T, S, S))
    mechanism = build_mechanism(name)
    with kernels(choice):
        output = mechanism(q, k, v, AttentionMask()).output
        heads = output.permute(2, 0, 1, 3).flatten(2)  # [B, H, T, D] -> [T, B, E]
        normalized = mechanism.postprocess_heads(heads)
        gradients = torch.autograd.grad(normalized.float().sum(), (q, k, v))
    assert output.isfinite().all() and normalized.isfinite().all()
    assert not any(gradient.isnan().any() for gradient in gradients)
    attack.outcomes.append("handled")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "relu", "inhibitor"])
def test_shape_errors_name_the_shapes_in_compiled_code_too(attack, name):
    mechanism = build_mechanism(name)
    compiled = torch.compile(lambda q, k, v: mechanism(q, k, v, AttentionMask()).output, backend="eager")
    q, k, v = random_qkv()
    assert compiled(q, k, v).shape == q.shape
    with pytest.raises(Exception, match=r"expected q \[B, 3, T, 6\]"):
        compiled(q, k, v[:, :, 1:])
    attack.outcomes.append("refused")


@every_mechanism
def test_an_unknown_choice_of_kernels_is_refused(attack, name, monkeypatch):
    monkeypatch.setenv(VARIABLE, "reference ")
    mechanism: nn.Module = build_mechanism(name)
    if mechanism.pointwise_activation is None:
        attack.outcomes.append("handled")
        return
    with pytest.raises(UserError, match=r"must be one of auto, fused, reference$"):
        mechanism(*random_qkv(), AttentionMask())
    attack.outcomes.append("refused")
