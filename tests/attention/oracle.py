"""The papers' equations, written pair by pair in float64: slow, and short enough to check by eye."""

import math

import torch


def softmax_row(scores, n):
    return [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]


def relu_row(scores, n, gamma=1.0, scale="visible"):
    factor = gamma * (math.sqrt(n / 2) if scale == "visible" else 1.0)
    return [max(s, 0.0) / factor for s in scores]


def sigmoid_row(scores, n):
    return [1 / (1 + math.exp(-(s - math.log(n)))) for s in scores]


def relu_n_row(scores, n):
    return [max(s, 0.0) / n for s in scores]


def rela_row(scores, n):
    return [max(s, 0.0) for s in scores]


def gelu_row(scores, n):
    return [s * (1 + math.erf(s / math.sqrt(2))) / 2 for s in scores]


def leaky_relu_row(scores, n):
    return [s if s > 0 else 0.2 * s for s in scores]


def sparsemax_row(scores, n):
    """Martins & Astudillo 2016, Algorithm 1."""
    ordered = sorted(scores, reverse=True)
    k = max(k for k in range(1, n + 1) if 1 + k * ordered[k - 1] > sum(ordered[:k]))
    threshold = (sum(ordered[:k]) - 1) / k
    return [max(s - threshold, 0.0) for s in scores]


def entmax15_row(scores, n):
    """Σ_j max(s_j/2 − τ, 0)² = 1, solved for τ by bisection."""
    low, high = max(scores) / 2 - 1, max(scores) / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(s / 2 - middle, 0) ** 2 for s in scores) > 1 else (low, middle)
    return [max(s / 2 - low, 0) ** 2 for s in scores]


ROWS = {
    "softmax": softmax_row,
    "sparsemax": sparsemax_row,
    "entmax15": entmax15_row,
    "sigmoid": sigmoid_row,
    "relu_n": relu_n_row,
    "relu": relu_row,
    "relu_layernorm": rela_row,
    "rela_unnormalised": rela_row,
    "rela_rmsnorm": rela_row,
    "rela_i": rela_row,
    "rela_g": rela_row,
    "rela_g_layernorm": rela_row,
    "rela_g_gelu": gelu_row,
    "rela_g_leaky_relu": leaky_relu_row,
}
"""Mechanism → its weights of one query for the keys it sees, from their scores q·k/√D and their number n."""


def attend(row, q, k, v, seen):
    """Weights [B, H, T, S] and mixed values [B, H, T, D] of `row`; `seen` is [B, 1, T, S] bool."""
    B, H, T, D = q.shape
    q, k, v = q.double(), k.double(), v.double()
    weights = torch.zeros(B, H, T, k.shape[2], dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                keys = [j for j in range(k.shape[2]) if seen[b, 0, i, j]]
                scores = [float(q[b, h, i] @ k[b, h, j]) / math.sqrt(D) for j in keys]
                for j, weight in zip(keys, row(scores, len(keys)) if keys else [], strict=True):
                    weights[b, h, i, j] = weight
    return weights, weights @ v


def inhibitor(q, k, v, seen, shift=0.5, signed=False):
    """[IN] Eq. 3–5, γ = √D, term by term: [B, H, T, D]."""
    B, H, T, D = q.shape
    mixed = torch.zeros(B, H, T, D, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                for j in range(k.shape[2]):
                    if seen[b, 0, i, j]:
                        z = max(float((q[b, h, i] - k[b, h, j]).abs().sum()) / math.sqrt(D) - shift, 0.0)
                        for d in range(D):
                            value = float(v[b, h, j, d])
                            if signed:
                                mixed[b, h, i, d] += max(max(value, 0.0) - z, 0.0) + min(min(value, 0.0) + z, 0.0)
                            else:
                                mixed[b, h, i, d] += max(value - z, 0.0)
    return mixed
