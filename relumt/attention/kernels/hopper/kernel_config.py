"""What the kernels for Hopper are compiled for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelConfig:
    """Constants of a kernel, its argument CONFIG; it is compiled for each value.

    Triton tells values apart by their text, so fields are numbers. Run-time values are separate arguments of a launch,
    because Triton takes no descriptors in a tuple, and would compile again for some numbers there. Kernels pack them
    into tuples inside, but never constants, which an assignment would turn into run-time values.
    """

    D: int
    """Head size, 64 or 128."""
    stages: int
    """Number of buffers for the blocks that warpgroups visit."""
    block: int = 128
    """Keys of a block, or queries in `dkdv`."""
    num_warpgroups: int = 2
    """Warpgroups that compute, with 64 queries each, or 64 keys in `dkdv`."""
    registers: int = 240
    """Registers of each of their threads."""
    is_causal: bool = False
    """Whether query i sees keys j ≤ S − T + i alone."""
    is_padded: bool = False
    """Whether keys are hidden, so that there is a `prepare.Padding`."""
    has_dropout: bool = False
    """Whether pairs are dropped: `forward` stores a bit for each, which other kernels load."""
    row_sums: int = 0
    """Sums of each query's weights w, or in the backward pass their gradients: 0 none, 1 Σ w, 2 also Σ w log w."""
    has_factor: bool = False
    """In the backward pass: whether each sentence has a factor f. Otherwise dO contains factors and `scale`."""
    exponent: int = 1
    """p of `powers`."""
    is_shifted: bool = False
    """Whether scores are scaled, and a bias added, before ReLU; see `powers`."""
