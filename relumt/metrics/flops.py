"""Floating-point operations of the activation and norm of a self-attention, [RL] Table 4; the projections are alike."""


def softmax_flops(T: int, heads: int) -> int:
    """3HT² − HT: exponentials, sums and divisions of T rows of T weights in H heads."""
    return 3 * heads * T**2 - heads * T


def rela_g_flops(T: int, heads: int, model: int) -> int:
    """HT² + 10Td + T: ReLU of every weight, and the gated RMSNorm of T outputs of size d."""
    return heads * T**2 + 10 * T * model + T
