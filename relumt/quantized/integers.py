"""Symmetric quantization: x is stored as round(x / scale), an integer from −(2^(b−1) − 1) to 2^(b−1) − 1."""

import torch
from torch import Tensor


def largest_integer(bits: int) -> int:
    """Return the largest integer of so many bits; −2^(b−1) is not used, so that −x can be stored if x can."""
    return 2 ** (bits - 1) - 1


def signed_width(largest: int) -> int:
    """Return how many bits a signed accumulator needs for integers of at most this absolute value."""
    return largest.bit_length() + 1


def scale_for(largest_value: Tensor, bits: int) -> Tensor:
    """Return the scale, in float64, that stores values up to `largest_value`; 1 if there are only zeros."""
    scale = largest_value.double() / largest_integer(bits)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def quantize(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Return round(x / scale), halves to even, in float64; values out of range become the largest integer."""
    largest = largest_integer(bits)
    return (x.double() / scale).round_().clamp_(-largest, largest)
