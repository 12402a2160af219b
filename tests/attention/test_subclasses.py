"""Mechanisms that a user derives from ours compute what they define, whatever fused path would serve ours."""

import math

import pytest
import torch
from torch import Tensor, nn

from relumt.attention import AttentionMask, Need
from relumt.attention.relu import ReLUAttention
from relumt.attention.sigmoid import SigmoidAttention
from relumt.attention.softmax import SoftmaxAttention
from tests.attention.cases import in_blocks


class BiasPerKey(SigmoidAttention):
    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return torch.linspace(-1, 1, S).view(1, 1, 1, S).to(like)


class SquaredWeights:
    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        return super().weights(scores, mask).square()


class SquaredReLU(SquaredWeights, ReLUAttention):
    pass


class HalvedFactor(ReLUAttention):
    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return super().factor(T, S, mask, like) / 2


class LinearFactor(SoftmaxAttention):
    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> float:
        return 1 / self.head_dim


class SquaredSoftmax(SquaredWeights, SoftmaxAttention):
    pass


def output_and_gradients(mechanism: nn.Module, need: Need = Need.NOTHING) -> list[Tensor]:
    """Return the output, and its gradient of every input and parameter."""
    seeded = torch.Generator().manual_seed(1)
    inputs = [torch.randn(2, 3, 7, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = AttentionMask(torch.arange(7)[None] < torch.tensor([[7], [5]]), is_causal=True)
    output = mechanism(*inputs, mask, need).output
    return [output, *torch.autograd.grad(output.square().sum(), [*inputs, *mechanism.parameters()])]


@pytest.mark.parametrize("subclass", [BiasPerKey, SquaredReLU])
def test_what_a_kernel_cannot_express_goes_to_the_reference(subclass, monkeypatch):
    mechanism = subclass(3, 4)
    with in_blocks() as kernel_calls:
        found = output_and_gradients(mechanism)
    assert not kernel_calls
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    torch.testing.assert_close(found, output_and_gradients(mechanism))


def test_a_kernel_serves_a_factor_that_it_can_express():
    mechanism = HalvedFactor(3, 4)
    with in_blocks() as kernel_calls:
        torch.testing.assert_close(output_and_gradients(mechanism), output_and_gradients(mechanism, Need.WEIGHTS))
    assert len(kernel_calls) == 1


@pytest.mark.parametrize("subclass", [LinearFactor, SquaredSoftmax])
def test_a_subclass_of_softmax_is_not_served_by_fused_softmax(subclass):
    found = output_and_gradients(subclass(3, 4))
    torch.testing.assert_close(found, output_and_gradients(subclass(3, 4), Need.WEIGHTS))
    difference = (found[0] - output_and_gradients(SoftmaxAttention(3, 4))[0]).abs().max()
    assert difference > math.sqrt(torch.finfo(torch.float32).eps)


class ReLUWithBias(ReLUAttention):
    def bias(self, T, S, mask, like):
        return torch.full((1, 1, 1, S), 0.5).to(like)


def test_a_bias_gives_padding_no_weight():
    """The output does not show it, because v is 0 at padding."""
    real = torch.tensor([[True, True, False]])
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    k, v = (x * real[:, None, :, None] for x in (k, v))
    result = ReLUWithBias(2, 4)(q, k, v, AttentionMask(real, padding_is_zero=True), Need.WEIGHTS)
    assert not result.weights[..., 2].any() and result.weights.any()
