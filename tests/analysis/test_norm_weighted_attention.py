"""Norm-weighted attention against loops over the equation, and the sum of all terms against the module's output."""

import math

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS
from relumt.attention.metrics import norm_weighted_attention
from relumt.attention.metrics.norm_weighted_attention import OutputTerms, contribution_norms
from relumt.attention.rela import ReLAWithRMSNorm
from relumt.attention.softmax import SoftmaxAttention
from relumt.plugin.model.hooks import named_attentions, output_terms_hook
from tests.plugin.model.build import build, sample

PAIRS = [(5, 4), (2, 3)]
WITH_WEIGHTS = [name for name, spec in MECHANISMS.items() if spec(1, 1).has_weights]
CASES = [
    *((name, ()) for name in WITH_WEIGHTS),
    ("softmax", ("--attention-gate", "elementwise")),
    ("rela_g", ("--attention-gate", "headwise")),
    ("rela_g_layernorm", ("--attention-gate", "elementwise")),
]


def contributions_by_loops(attention, weights, values, heads, x):
    """Return c [H, T, S, E] of one sentence, and what belongs to no key, [T, E], from the module's parameters.

    Args:
        attention: the module.
        weights: [H, T, S].
        values: [H, S, D].
        heads: concatenated heads, [T, E].
        x: input of the query projection, [T, E].
    """
    (H, T, S), D, E = weights.shape, values.shape[-1], heads.shape[-1]
    norm, gate = getattr(attention.mechanism, "norm", None), torch.ones(T, E).double()
    if hasattr(norm, "gate"):
        gate, norm = 1 / (1 + torch.exp(-heads * norm.gate)), norm.norm
    is_layer_norm = isinstance(norm, nn.LayerNorm)
    is_normalized = norm is not None and not isinstance(norm, nn.Identity)
    out_gate = torch.ones(T, E).double()
    if attention.gate is not None:
        out_gate = 1 / (1 + torch.exp(-x @ attention.gate.proj.weight.T))
        out_gate = out_gate.repeat_interleave(E // out_gate.shape[1], 1)
    found, rest = torch.zeros(H, T, S, E).double(), torch.zeros(T, E).double()
    for i in range(T):
        z = heads[i]
        if is_layer_norm:
            divisor = math.sqrt(((z - z.mean()) ** 2).mean() + norm.eps)
        else:
            divisor = math.sqrt((z**2).mean() + norm.eps) if is_normalized else 1.0
        gain = norm.weight / divisor if is_normalized else torch.ones(E).double()
        for h in range(H):
            for j in range(S):
                own = torch.zeros(E).double()
                own[h * D : (h + 1) * D] = weights[h, i, j] * values[h, j]
                centered = own - own.mean() if is_layer_norm else own
                found[h, i, j] = attention.out_proj.weight @ (out_gate[i] * gate[i] * gain * centered)
        rest[i] = attention.out_proj.bias
        if is_layer_norm:
            rest[i] = rest[i] + attention.out_proj.weight @ (out_gate[i] * gate[i] * norm.bias)
    return found, rest


@pytest.mark.parametrize(("name", "flags"), CASES)
@torch.no_grad()
def test_norms_agree_with_loops_and_the_terms_add_up_to_the_output(name, flags):
    model = build("mechanism_transformer", "--attention", name, *flags).eval().double()
    for key, parameter in model.named_parameters():
        if "norm" in key or "gate" in key or key.endswith("bias"):
            nn.init.normal_(parameter, std=0.5)  # no neutral gain, and values with a bias
    batch, seen, outputs = sample(PAIRS), {}, {}

    def keep(module, attention, result, terms):
        seen[module] = attention, result, terms

    handles = [
        module.register_forward_hook(
            lambda _, args, kwargs, output, key=key: outputs.update({key: (kwargs["query"], output[0])}),
            with_kwargs=True,
        )
        for key, module in model.named_modules()
        if key.endswith("attn")
    ]
    with output_terms_hook(model, keep):
        model(**batch["net_input"])
    for handle in handles:
        handle.remove()
    assert len(seen) == len(outputs) == 6
    for module in ("decoder.layers.0.self_attn", "decoder.layers.1.encoder_attn")[not flags :]:
        attention, result, terms = seen[module]
        x, output = outputs[module]
        row = 1  # the shorter pair: its padding must not contribute
        queries, keys = (torch.ones(n, dtype=torch.bool) for n in (x.shape[0], terms.values.shape[2]))
        selected = terms.select(row, queries, keys)
        heads = result.output[row].transpose(0, 1).flatten(1)
        expected, rest = contributions_by_loops(attention, selected.weights, selected.values, heads, x[:, row])
        norms, together = contribution_norms(selected)
        torch.testing.assert_close(norms, expected.norm(dim=-1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(together, expected.sum(0).norm(dim=-1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(expected.sum((0, 2)) + rest, output[:, row], rtol=1e-7, atol=1e-9)


def test_null_rows_contribute_nothing_and_negative_weights_by_their_magnitude():
    weights = torch.tensor([[[0.0, 0.0], [-2.0, 1.0]]]).double()
    values = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]).double()
    for gain in (None, torch.ones(2, 2).double()):
        norms, together = contribution_norms(OutputTerms(weights, values, gain, False, torch.eye(2).double()))
        assert norms.tolist() == [[[0, 0], [10, 0]]] and together.tolist() == [[0, 0], [10, 0]]


def test_heads_that_cancel_each_other_add_nothing_together():
    weights, values = torch.full((2, 1, 1), 0.1), torch.tensor([[[1000.0]], [[-1000.0]]])
    _, together = contribution_norms(OutputTerms(weights, values, None, False, torch.tensor([[1.0, 1.0]])))
    assert together.item() == 0


def test_long_sentences_are_computed_in_groups(monkeypatch):
    torch.manual_seed(1)
    terms = OutputTerms(torch.rand(2, 5, 3), torch.randn(2, 3, 4), torch.randn(5, 8), True, torch.randn(8, 8))
    whole = contribution_norms(terms)
    monkeypatch.setattr(norm_weighted_attention, "MAX_ELEMENTS", 2 * 2 * 3 * 8)
    torch.testing.assert_close(contribution_norms(terms), whole)


@pytest.mark.parametrize("base", [SoftmaxAttention, ReLAWithRMSNorm])
def test_a_mechanism_with_an_unknown_map_has_no_terms(base):
    class Squared(base):
        def postprocess_heads(self, x):
            return x * x

    model, batch, found = build("mechanism_transformer").eval(), sample(PAIRS), []
    for attention in named_attentions(model).values():
        attention.mechanism = Squared(2, 8)
    with output_terms_hook(model, lambda name, attention, result, terms: found.append(terms)), torch.no_grad():
        model(**batch["net_input"])
    assert found == [None] * 6
