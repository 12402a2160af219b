"""Mechanisms that a user makes of ours: whatever path would serve ours, theirs are computed as they say."""

import math

import pytest
import torch
from torch import Tensor, nn

from relumt.attention import AttentionMask, Need
from relumt.attention.relu import ReLUAttention
from relumt.attention.sigmoid import SigmoidAttention
from relumt.attention.softmax import SoftmaxAttention
from tests.attention.cases import in_blocks


class LearnedBias(SigmoidAttention):
    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_heads, head_dim)
        self.own = nn.Parameter(torch.tensor(0.5))

    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return super().bias(T, S, mask, like) + self.own


class LearnedGamma(ReLUAttention):
    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_heads, head_dim)
        self.own = nn.Parameter(torch.tensor(2.0))

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return super().factor(T, S, mask, like) * self.own


class OfHeads(ReLUAttention):
    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return super().factor(T, S, mask, like) * torch.arange(1, 1 + self.num_heads).view(1, -1, 1, 1).to(like)


class OfKeys(SigmoidAttention):
    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        return torch.linspace(-1, 1, S).view(1, 1, 1, S).to(like)


class Squares:
    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        return super().weights(scores, mask).square()


class Mixed(Squares, ReLUAttention):
    pass


class Cooler(SoftmaxAttention):
    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> float:
        return 1 / self.head_dim


class Distances(SoftmaxAttention):
    def scores(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor:
        return -torch.cdist(q, k)


class Hardened(Squares, SoftmaxAttention):
    pass


def result(mechanism: nn.Module, need: Need = Need.NOTHING) -> list[Tensor]:
    """What is mixed, and the gradient of every input and parameter."""
    seeded = torch.Generator().manual_seed(1)
    inputs = [torch.randn(2, 3, 7, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mixed = mechanism(
        *inputs, AttentionMask(torch.arange(7)[None] < torch.tensor([[7], [5]]), is_causal=True), need
    ).output
    return [mixed, *torch.autograd.grad(mixed.square().sum(), [*inputs, *mechanism.parameters()])]


@pytest.mark.parametrize("own", [LearnedBias, LearnedGamma, OfHeads, OfKeys, Mixed])
def test_what_a_kernel_cannot_know_of_goes_to_the_reference(own, monkeypatch):
    mechanism = own(3, 4)
    with in_blocks() as served:
        ours = result(mechanism)
    assert not served
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    torch.testing.assert_close(ours, result(mechanism))


def test_what_a_kernel_knows_of_it_serves():
    class Halved(ReLUAttention):
        def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
            return super().factor(T, S, mask, like) / 2

    mechanism = Halved(3, 4)
    with in_blocks() as served:
        torch.testing.assert_close(result(mechanism), result(mechanism, Need.WEIGHTS))
    assert len(served) == 1


@pytest.mark.parametrize("own", [Cooler, Distances, Hardened])
def test_a_kind_of_softmax_is_the_same_watched_and_unwatched(own):
    torch.testing.assert_close(result(own(3, 4)), result(own(3, 4), Need.WEIGHTS))
    differs = (result(own(3, 4))[0] - result(SoftmaxAttention(3, 4))[0]).abs().max()
    assert differs > math.sqrt(torch.finfo(torch.float32).eps)
