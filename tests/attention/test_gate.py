"""Gates on the output of a mechanism against their equation."""

import pytest
import torch

from relumt.attention import GATES, OutputGate


@pytest.mark.parametrize("kind", GATES)
def test_gated_heads_are_the_equation(kind):
    torch.manual_seed(1)
    T, B, H, D = 3, 2, 4, 5
    heads, x = (torch.randn(T, B, H * D, dtype=torch.float64) for _ in range(2))
    gate = OutputGate(kind, H * D, H).double()
    gated = gate(heads, x)
    W = gate.proj.weight.T  # Qiu et al. 2025: y ⊙ σ(xW)
    for t in range(T):
        for b in range(B):
            scores = 1 / (1 + (-(x[t, b] @ W)).exp())
            expected = [
                heads[t, b, h * D + d] * (scores[h * D + d] if kind == "elementwise" else scores[h])
                for h in range(H)
                for d in range(D)
            ]
            torch.testing.assert_close(gated[t, b], torch.stack(expected))


def test_an_unknown_gate_is_refused():
    with pytest.raises(ValueError, match="a gate must be one of elementwise, headwise, not 'none'"):
        OutputGate("none", 8, 2)
    with pytest.raises(ValueError, match="embed_dim must be a multiple of num_heads, not 10 and 4"):
        OutputGate("headwise", 10, 4)
