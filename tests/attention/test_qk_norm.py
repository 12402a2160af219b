"""QK norm against its equation."""

import math

import pytest
import torch

from relumt.attention import QK_NORMS, AttentionMask, QKNorm


@pytest.mark.parametrize("kind", QK_NORMS)
def test_scores_are_scaled_cosines(kind):
    torch.manual_seed(1)
    B, H, T, S, D = 2, 3, 4, 5, 6
    q, k = torch.randn(B, H, T, D, dtype=torch.float64), torch.randn(B, H, S, D, dtype=torch.float64)
    norm = QKNorm(kind, H, D).double()
    norm.scale.data = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    lengths = (5, 3)
    mask = AttentionMask(torch.arange(S) < torch.tensor(lengths)[:, None], is_causal=True)
    new_q, new_k = norm(q, k, mask)
    scores = (new_q @ new_k.transpose(-2, -1)).detach() / math.sqrt(D)
    for b, length in enumerate(lengths):
        for h, g in enumerate((1.0, 2.0, 3.0)):
            for i in range(T):
                num_visible = min(S - T + i + 1, length)
                scale = g * math.log(max(num_visible, 2)) / math.log(20) if kind == "log_n" else g
                for j in range(S):
                    x, y = q[b, h, i].tolist(), k[b, h, j].tolist()
                    cosine = sum(c * d for c, d in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
                    assert math.isclose(scores[b, h, i, j], scale * cosine, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("kind", QK_NORMS)
def test_a_zero_vector_has_the_score_0_and_finite_gradients(kind):
    q = torch.zeros(1, 1, 1, 4, requires_grad=True)
    new_q, new_k = QKNorm(kind, 1, 4)(q, torch.ones(1, 1, 2, 4), AttentionMask())
    (new_q @ new_k.transpose(-2, -1)).sum().backward()
    assert not new_q.any() and q.grad.isfinite().all()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="a QK norm must be one of constant, log_n, not 'log'"):
        QKNorm("log", 1, 4)
