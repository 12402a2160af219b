"""Mechanisms under transforms of PyTorch: torch.func, checkpointing, fake tensors, compiled and exported programs."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from relumt.attention import MECHANISMS, AttentionMask, Need
from tests.attention.cases import distinct_attentions

B, H, T, D = 2, 2, 6, 4
TRANSFORMABLE = ("relu", "relu_n", "relu2", "sigmoid", "rela_i", "rela_g")
"""Mechanisms whose reference supports torch.func (docs/kernels.md)."""


def build(name, **options):
    torch.manual_seed(0)
    if name.startswith("inhibitor"):
        options |= {"implementation": "naive"}
    return MECHANISMS[name](H, D, **options)


def padded(hides_all=False):
    key_mask = torch.ones(B, T, dtype=torch.bool)
    key_mask[0, 4:] = False
    if hides_all:
        key_mask[1] = False
    return AttentionMask(key_mask)


@pytest.fixture
def q():
    return torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mask", [AttentionMask(is_causal=True), padded(hides_all=True)], ids=repr)
@pytest.mark.parametrize("name", distinct_attentions())
def test_selective_checkpointing_changes_no_gradient(name, mask, q):
    """What it keeps is not overwritten: PyTorch would not notice."""
    mechanism, x = build(name), q.requires_grad_()

    def loss(x):
        return mechanism(x, x.sin(), x.cos(), mask).output.pow(2).sum()

    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.bmm.default])
    expected, found = (
        torch.autograd.grad(value, x)[0]
        for value in (loss(x), checkpoint(loss, x, use_reentrant=False, context_fn=contexts))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", TRANSFORMABLE)
def test_a_mask_is_as_before_after_transforms(name, q):
    mechanism, mask = build(name), padded()

    def loss(q):
        return mechanism(q, q, q, mask).output.pow(2).sum()

    first, second = (torch.func.jvp(torch.func.grad(loss), (q,), (q,))[1] for _ in range(2))
    assert torch.equal(first, second)
    torch.func.grad(loss)(q)
    copy.deepcopy(mask)


@pytest.mark.parametrize("name", distinct_attentions())
def test_fake_tensors_are_not_remembered(name, q):
    mechanism, mask = build(name), padded()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(q)
        assert mechanism(fake, fake, fake, mask, Need.WEIGHTS).output.shape == (B, H, T, D)
    assert type(mechanism(q, q, q, mask).output) is torch.Tensor


@pytest.mark.parametrize("name", TRANSFORMABLE)
def test_masks_are_mapped_over(name, q):
    mechanism, masks = build(name), torch.rand(3, T, T, generator=torch.Generator().manual_seed(2)) > 0.4

    def attend(attn_mask):
        return mechanism(q, q, q, AttentionMask(attn_mask=attn_mask)).output

    torch.testing.assert_close(torch.func.vmap(attend)(masks), torch.stack([attend(mask) for mask in masks]))


@pytest.mark.parametrize("name", MECHANISMS)
def test_meta_tensors_have_the_shapes(name):
    with torch.device("meta"):
        mechanism, q = build(name), torch.randn(B, H, T, D, requires_grad=True)
        projections = nn.Linear(H * D, H * D), nn.Linear(H * D, H * D)
        mechanism.init_projections(*projections)
        output = mechanism(q, q, q, AttentionMask()).output
        output.sum().backward()
    assert output.shape == q.grad.shape == (B, H, T, D) and output.is_meta


@pytest.mark.parametrize("name", MECHANISMS)
def test_parameters_are_initialized_after_construction_on_the_meta_device(name):
    with torch.device("meta"):
        found = build(name)
    found.to_empty(device="cpu")
    expected = build(name)
    for mechanism in (found, expected):
        torch.manual_seed(1)
        for module in mechanism.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    for key, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[key], value), key


@pytest.mark.parametrize("name", ["relu", "relu2", "inhibitor"])
def test_projections_that_share_weights_are_scaled_once(name):
    mechanism = MECHANISMS[name](H, D)
    torch.manual_seed(0)
    shared = nn.Linear(H * D, H * D)
    q_proj, k_proj, tied, other = (copy.deepcopy(shared) for _ in range(4))
    mechanism.init_projections(q_proj, k_proj)
    mechanism.init_projections(shared, shared)
    other.weight, other.bias = tied.weight, tied.bias
    mechanism.init_projections(tied, other)
    for projection in (shared, tied):
        torch.testing.assert_close(projection.weight, q_proj.weight)
        torch.testing.assert_close(projection.bias, k_proj.bias)


@pytest.mark.parametrize("name", ["softmax", "ssmax"])
def test_fused_softmax_keeps_the_types_of_explicit_softmax(name, q):
    mechanism = build(name).eval()
    for dtypes, uses_autocast in ((3 * [torch.float32], True), ([torch.float32, *2 * [torch.bfloat16]], False)):
        inputs = [q.to(dtype) for dtype in dtypes]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=uses_autocast):
            fused = mechanism(*inputs, AttentionMask()).output
            explicit = mechanism(*inputs, AttentionMask(), Need.WEIGHTS).output
        torch.testing.assert_close(fused, explicit)
