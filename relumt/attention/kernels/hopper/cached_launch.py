"""Launch kernels at half of the host's time.

At each launch, Triton asks every argument for its type, alignment and divisibility, to find the code for them. Here
what it found is kept by the arguments' values.
"""

from types import NoneType
from typing import Any

from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from relumt.attention.kernels.hopper.arguments import KernelConfig

MAX_KEPT = 4096
"""How much is kept, before all is forgotten: there is something for each combination of lengths."""
VALUES = frozenset((bool, int, float, NoneType, KernelConfig))

codes: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, programs: int, *arguments: Any) -> None:
    """Launch a kernel on the current device, with Triton's default options.

    Args:
        kernel: a function decorated with `triton.jit` or `gluon.jit`.
        programs: size of the grid.
        arguments: descriptors for TMA, whose blocks the constants decide, tensors, `VALUES`, and tuples of tensors and
            values; the constants come last.
    """
    key = (kernel.__name__, *kinds(arguments))
    code = codes.get(key)
    if code is not None:
        code[programs, 1, 1](*arguments)  # of the constants, only their number counts
        return
    if len(codes) >= MAX_KEPT:
        codes.clear()
    codes[key] = kernel[programs,](*arguments)


def kinds(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what code depends on: values, and the types of tensors and descriptors."""
    return tuple([x if type(x) in VALUES else kind(x) for x in arguments])  # a generator is slower


def kind(x: Any) -> Any:
    """Return what code depends on: that of a tensor, a descriptor or a tuple."""
    if isinstance(x, TensorDescriptor):
        return x.base.dtype
    return kinds(x) if isinstance(x, tuple) else (x.dtype, x.device, x.data_ptr() % 16)
