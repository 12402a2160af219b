"""The papers' equations, written pair by pair in float64: slow, and short enough to check by eye."""

import math

import torch


def softmax_row(scores, n):
    return [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]


def relu_row(scores, n, gamma=1.0, scale="visible"):
    factor = gamma * (math.sqrt(n / 2) if scale == "visible" else 1.0)
    return [max(s, 0.0) / factor for s in scores]


ROWS = {"softmax": softmax_row, "relu": relu_row}
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
