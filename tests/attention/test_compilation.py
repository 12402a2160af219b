"""Mechanisms in compiled code and exported programs: no graph breaks, no compilation for each length."""

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask
from tests.attention.cases import distinct_attentions
from tests.attention.test_transforms import B, D, H, build

WITH_WEIGHTS = [name for name in distinct_attentions() if MECHANISMS[name](1, 4).has_weights]


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_compiles_without_graph_breaks(name):
    """With more keys than entmax sorts at once."""
    mechanism = MECHANISMS[name](2, 4)
    q, k = (torch.randn(2, 2, n, 4) for n in (3, 70))
    key_mask = torch.arange(70) < torch.tensor([[70], [3]])
    compiled = torch.compile(
        lambda *qkv: mechanism(*qkv, AttentionMask(key_mask)).output, backend="eager", fullgraph=True, dynamic=False
    )
    with torch._dynamo.config.patch(recompile_limit=len(MECHANISMS)):  # the mechanisms share one code object
        torch.testing.assert_close(compiled(q, k, k), mechanism(q, k, k, AttentionMask(key_mask)).output)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", [name for name in WITH_WEIGHTS if name not in ("entmax15", "sparsemax")])
def test_training_compiles_without_graph_breaks(name, dropout):
    """With more scores than are filled by one operator; the package `entmax` breaks the graph."""
    mechanism = MECHANISMS[name](2, 4, dropout)
    q = torch.randn(2, 2, 100, 4, requires_grad=True)
    mask = AttentionMask(torch.arange(100) < torch.tensor([[100], [80]]), is_causal=True)
    compiled = torch.compile(lambda q: mechanism(q, q, q, mask).output, backend="eager", fullgraph=True)
    torch._dynamo.reset()
    (gradient,) = torch.autograd.grad(compiled(q).square().sum(), q)
    if dropout:
        assert gradient.isfinite().all()
    else:
        (expected,) = torch.autograd.grad(mechanism(q, q, q, mask).output.square().sum(), q)
        torch.testing.assert_close(gradient, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", distinct_attentions())
def test_lengths_do_not_cause_compilations(name):
    mechanism = build(name)
    compiled = torch.compile(
        lambda q, x: mechanism(q, q, q, AttentionMask(x, True)).output, backend="eager", dynamic=True, fullgraph=True
    )
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        for length in range(3, 12):
            compiled(torch.randn(B, H, length, D), torch.ones(B, length, dtype=torch.bool))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["relu", "relu2", "rela_g", "softmax", "ssmax", "softpick", "sigmoid", "sparsemax", "entmax_learned"]
)
def test_lengths_stay_open_in_exported_programs(name):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.mechanism = build(name)

        def forward(self, q):
            return self.mechanism(q, q, q, AttentionMask()).output

    q = torch.randn(B, H, 6, D)
    sizes = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Attention(), (q,), dynamic_shapes=(sizes,)).module()
    longer = torch.randn(3, H, 30, D)
    torch.testing.assert_close(program(longer), Attention()(longer))
