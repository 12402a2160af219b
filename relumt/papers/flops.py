"""Floating-point operations of the activation and normalization in one self-attention layer ([RL] Table 4).

Projections and dot products cost the same for every mechanism and are not counted.
"""


def softmax_flops(T: int, heads: int) -> int:
    """Return 3HT² − HT: exponentials, sums and divisions for T rows of T weights in H heads."""
    return 3 * heads * T**2 - heads * T


def rela_g_flops(T: int, heads: int, model: int) -> int:
    """Return HT² + 10Td + T: ReLU of every weight, then the gated RMSNorm of T outputs of size d."""
    return heads * T**2 + 10 * T * model + T
