"""QK norm against its equation."""

import math

import torch

from relumt.attention import QKNorm


def test_scores_are_scaled_cosines():
    torch.manual_seed(1)
    B, H, T, S, D = 2, 3, 4, 5, 6
    q, k = torch.randn(B, H, T, D, dtype=torch.float64), torch.randn(B, H, S, D, dtype=torch.float64)
    norm = QKNorm(H, D).double()
    norm.scale.data = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    new_q, new_k = norm(q, k)
    scores = (new_q @ new_k.transpose(-2, -1)).detach() / math.sqrt(D)
    for b in range(B):
        for h, g in enumerate((1.0, 2.0, 3.0)):
            for i in range(T):
                for j in range(S):
                    x, y = q[b, h, i].tolist(), k[b, h, j].tolist()
                    cosine = sum(c * d for c, d in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
                    assert math.isclose(scores[b, h, i, j], g * cosine, rel_tol=1e-9, abs_tol=1e-12)


def test_a_zero_vector_has_the_score_0_and_finite_gradients():
    q = torch.zeros(1, 1, 1, 4, requires_grad=True)
    new_q, new_k = QKNorm(1, 4)(q, torch.ones(1, 1, 2, 4))
    (new_q @ new_k.transpose(-2, -1)).sum().backward()
    assert not new_q.any() and q.grad.isfinite().all()
