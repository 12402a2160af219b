"""α-entmax with a learned α: weights and gradients for every α, against the package `entmax`."""

import entmax
import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.sparse import entmax_alpha


def problem(S, spread, alpha, dtype=torch.float64):
    """Return scores [2, 3, 4, S] whose largest in a row is 0, and one α per head [3, 1, 1]."""
    seeded = torch.Generator().manual_seed(S)
    scores = spread * torch.randn(2, 3, 4, S, dtype=torch.float64, generator=seeded)
    alphas = torch.tensor([alpha, 1.5, 2.0], dtype=torch.float64)[:, None, None]
    scores = (scores - scores.amax(-1, keepdim=True)).to(dtype)
    return scores.requires_grad_(), alphas.to(dtype).requires_grad_()


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0])
@pytest.mark.parametrize("spread", [1e-3, 10.0])
@pytest.mark.parametrize("S", [1, 7, 100])
def test_weights_and_gradients_are_those_of_the_package(S, spread, alpha):
    scores, alphas = problem(S, spread, alpha)
    weights = entmax_alpha(scores, alphas)
    expected = entmax.entmax_bisect(scores, alphas, dim=-1, n_iter=80)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-9)
    output_gradient = torch.randn_like(weights)
    for ours, theirs in zip(
        torch.autograd.grad(weights, (scores, alphas), output_gradient),
        torch.autograd.grad(expected, (scores, alphas), output_gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0])
def test_float32_is_close_to_float64(alpha):
    (scores, alphas), (half, half_alphas) = (
        problem(300, 3.0, alpha, dtype) for dtype in (torch.float64, torch.float32)
    )
    torch.testing.assert_close(
        entmax_alpha(half, half_alphas).double(), entmax_alpha(scores, alphas), rtol=0, atol=1e-5
    )


def test_each_head_has_its_own_alpha_from_softmax_to_sparsemax():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    mechanism = MECHANISMS["entmax_learned"](2, 4).double()
    mechanism.alpha_logit.data = torch.tensor([-30.0, 30.0], dtype=torch.float64)
    weights = mechanism(q, k, v, AttentionMask(), Need.WEIGHTS).weights
    softmax, sparsemax = (
        MECHANISMS[name](2, 4)(q, k, v, AttentionMask(), Need.WEIGHTS).weights for name in ("softmax", "sparsemax")
    )
    torch.testing.assert_close(weights[:, 0], softmax[:, 0], rtol=0, atol=0.05)  # α is not exactly 1
    torch.testing.assert_close(weights[:, 1], sparsemax[:, 1])
