"""The papers' equations for one query at a time, in float64 and plain Python, without calling relumt.

ORACLES has one line for each mechanism. tests/attention/test_equations.py fails for a mechanism that has none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

Vector = list[float]
QueryEquation = Callable[[Vector, list[Vector], list[Vector]], tuple[Vector | None, Vector]]


def weighted_sum(weights: Callable[[Vector, int], Vector]) -> QueryEquation:
    """Σ_j s_j v_j over the visible keys, where `weights` returns all s_j from the scores q·k_j/√D and their number."""

    def equation(q, keys, values):
        scores = [sum(x * y for x, y in zip(q, k, strict=True)) / math.sqrt(len(q)) for k in keys]
        s = weights(scores, len(keys))
        return s, [sum(s_j * v[d] for s_j, v in zip(s, values, strict=True)) for d in range(len(values[0]))]

    return equation


def below_largest(scores):
    """Return the scores minus the largest, which changes no weight on the simplex and keeps large scores exact."""
    return [s - max(scores) for s in scores]


def softmax(scores, n):
    scores = below_largest(scores)
    return [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]


def sparsemax(scores, n):
    """Martins & Astudillo 2016, Algorithm 1."""
    scores = below_largest(scores)
    descending = sorted(scores, reverse=True)
    k = max(k for k in range(1, n + 1) if 1 + k * descending[k - 1] > sum(descending[:k]))
    threshold = (sum(descending[:k]) - 1) / k
    return [max(s - threshold, 0.0) for s in scores]


def entmax15(scores, n):
    """Σ_j max(s_j/2 − τ, 0)² = 1, solved for τ by bisection."""
    scores = below_largest(scores)
    low, high = -1.0, 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(s / 2 - middle, 0) ** 2 for s in scores) > 1 else (low, middle)
    return [max(s / 2 - low, 0) ** 2 for s in scores]


def ssmax(scores, n):
    """Nakanishi 2025, with s at its initial value, a float32."""
    scale = torch.tensor(0.43).item()
    return softmax([scale * math.log(n) * s for s in scores], n)


def elastic_softmax(scores, n, offset=-1.0):
    """Fu et al. 2026."""
    return [max(p + offset / n, 0.0) for p in softmax(scores, n)]


def softpick(scores, n):
    """Zuhri et al. 2025, in the scale of exp(−m), without which exp overflows."""
    m = max(*scores, 0.0)
    excess = [math.exp(s - m) - math.exp(-m) for s in scores]
    total = sum(map(abs, excess)) + 1e-8 * math.exp(-m)
    return [max(x, 0.0) / total for x in excess]


def sigmoid(scores, n):
    return [(1 + math.tanh((s - math.log(n)) / 2)) / 2 for s in scores]  # σ(x), which overflows nowhere


def relu_n(scores, n):
    return [max(s, 0.0) / n for s in scores]


def reluformer(scores, n, gamma=1.0, scale="visible"):
    factor = gamma * (math.sqrt(n / 2) if scale == "visible" else 1.0)
    return [max(s, 0.0) / factor for s in scores]


def relu2(scores, n, gamma=1.0, scale="visible"):
    factor = gamma * (math.sqrt(1.5 * n) if scale == "visible" else 1.0)
    return [max(s, 0.0) ** 2 / factor for s in scores]


def relu_l1(scores, n, power=2, shift=1.0, slope=1.0):
    weights = [(max(shift + slope * s / power, 0.0) / max(shift, 1 / power)) ** power for s in scores]
    return [w / (sum(weights) + 1e-6) for w in weights]


def relu(scores, n):
    return [max(s, 0.0) for s in scores]


def gelu(scores, n):
    return [s * (1 + math.erf(s / math.sqrt(2))) / 2 for s in scores]


def leaky_relu(scores, n):
    return [s if s > 0 else 0.2 * s for s in scores]


def inhibitor(q, keys, values, signed=False, gamma=1.0, shift=0.5, scale="none"):
    """[IN] Eq. 3–5 with γ in units of √D; `scale` "visible" divides the sum by the number of keys. No weights."""
    output = [0.0] * len(values[0])
    for k, v in zip(keys, values, strict=True):
        z = max(sum(abs(x - y) for x, y in zip(q, k, strict=True)) / (gamma * math.sqrt(len(q))) - shift, 0.0)
        for d, value in enumerate(v):
            if signed:
                output[d] += max(max(value, 0.0) - z, 0.0) + min(min(value, 0.0) + z, 0.0)
            else:
                output[d] += max(value - z, 0.0)
    return None, [total / (len(keys) if scale == "visible" else 1) for total in output]


def no_norm(z, mechanism):
    return z


def rms_norm(z, gains):
    rms = math.sqrt(sum(x * x for x in z) / len(z) + 1e-8)
    return [g * x / rms for g, x in zip(gains, z, strict=True)]


def layer_norm(z, gains, biases):
    mean = sum(z) / len(z)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in z) / len(z) + 1e-5)
    return [g * (x - mean) / deviation + b for g, b, x in zip(gains, biases, z, strict=True)]


def gated(z, gates, normalized):
    return [y / (1 + math.exp(-w * x)) for w, x, y in zip(gates, z, normalized, strict=True)]


def with_rms_norm(z, mechanism):
    return rms_norm(z, mechanism.norm.weight.tolist())


def with_layer_norm(z, mechanism):
    return layer_norm(z, mechanism.norm.weight.tolist(), mechanism.norm.bias.tolist())


def with_gated_rms_norm(z, mechanism):
    norm = mechanism.norm
    return gated(z, norm.gate.tolist(), rms_norm(z, norm.norm.weight.tolist()))


def with_gated_layer_norm(z, mechanism):
    norm = mechanism.norm
    return gated(z, norm.gate.tolist(), layer_norm(z, norm.norm.weight.tolist(), norm.norm.bias.tolist()))


@dataclass(frozen=True)
class Oracle:
    """A mechanism as its paper defines it.

    attend: q, the visible keys and their values -> the weights (None if the mechanism has none) and the output
    postprocess_heads: a token's concatenated heads and the mechanism, for its parameters -> the normalized heads
    """

    attend: QueryEquation
    postprocess_heads: Callable[[Vector, nn.Module], Vector] = no_norm


ORACLES = {
    "softmax": Oracle(weighted_sum(softmax)),
    "sparsemax": Oracle(weighted_sum(sparsemax)),
    "entmax15": Oracle(weighted_sum(entmax15)),
    "entmax_learned": Oracle(weighted_sum(entmax15)),  # α starts at 1.5
    "ssmax": Oracle(weighted_sum(ssmax)),
    "elastic_softmax": Oracle(weighted_sum(elastic_softmax)),
    "softpick": Oracle(weighted_sum(softpick)),
    "sigmoid": Oracle(weighted_sum(sigmoid)),
    "relu_n": Oracle(weighted_sum(relu_n)),
    "relu": Oracle(weighted_sum(reluformer)),
    "relu2": Oracle(weighted_sum(relu2)),
    "relu_l1": Oracle(weighted_sum(relu_l1)),
    "relu_layernorm": Oracle(weighted_sum(relu), with_layer_norm),
    "rela_unnormalized": Oracle(weighted_sum(relu)),
    "rela_rmsnorm": Oracle(weighted_sum(relu), with_rms_norm),
    "rela_i": Oracle(weighted_sum(relu), with_rms_norm),
    "rela_g": Oracle(weighted_sum(relu), with_gated_rms_norm),
    "rela_g_layernorm": Oracle(weighted_sum(relu), with_gated_layer_norm),
    "rela_g_gelu": Oracle(weighted_sum(gelu), with_gated_rms_norm),
    "rela_g_leaky_relu": Oracle(weighted_sum(leaky_relu), with_gated_rms_norm),
    "inhibitor": Oracle(inhibitor),
    "inhibitor_signed": Oracle(partial(inhibitor, signed=True)),
}


def attend(equation: QueryEquation, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> tuple[Tensor | None, Tensor]:
    """Apply `equation` to every query; `visible` is [B, 1, T, S] bool.

    Returns the weights [B, H, T, S], None if there are none, and the output [B, H, T, D], both float64.
    """
    (B, H, T, _), S = q.shape, k.shape[2]
    weights = torch.zeros(B, H, T, S, dtype=torch.float64)
    output = torch.zeros(B, H, T, v.shape[3], dtype=torch.float64)
    has_weights = True
    for b in range(B):
        for h in range(H):
            keys, values = k[b, h].tolist(), v[b, h].tolist()
            for i in range(T):
                visible_keys = [j for j in range(S) if visible[b, 0, i, j]]
                if not visible_keys:
                    continue
                s, out = equation(
                    q[b, h, i].tolist(), [keys[j] for j in visible_keys], [values[j] for j in visible_keys]
                )
                output[b, h, i] = torch.tensor(out, dtype=torch.float64)
                if s is None:
                    has_weights = False
                else:
                    weights[b, h, i, visible_keys] = torch.tensor(s, dtype=torch.float64)
    return weights if has_weights else None, output
