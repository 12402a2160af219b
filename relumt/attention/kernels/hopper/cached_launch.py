"""Launch kernels at half of the host's time.

At each launch, Triton asks every argument for its type, alignment and divisibility, to find the code for them. Here
what it found is kept by the arguments' values.
"""

from types import NoneType
from typing import Any

from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from relumt.attention.kernels.hopper.kernel_config import KernelConfig

MAX_KEPT = 4096
"""How much is kept, before all is forgotten: there is something for each combination of lengths."""
VALUES = frozenset((bool, int, float, NoneType, KernelConfig))

codes: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, programs: int, *arguments: Any) -> None:
    """Launch a kernel on the current device, with Triton's default options.

    Args:
        kernel: a function decorated with `triton.jit` or `gluon.jit`.
        programs: size of the grid.
        arguments: descriptors for TMA, whose blocks the constants decide, tensors, and `VALUES`, the constants last.
    """
    key = (kernel.__name__, *[x if type(x) in VALUES else kind(x) for x in arguments])
    code = codes.get(key)
    if code is not None:
        code[programs, 1, 1](*arguments)  # of the constants, only their number counts
        return
    if len(codes) >= MAX_KEPT:
        codes.clear()
    codes[key] = kernel[programs,](*arguments)


def kind(x: Any) -> Any:
    """Return what the code for a tensor or descriptor depends on."""
    return x.base.dtype if isinstance(x, TensorDescriptor) else (x.dtype, x.device, x.data_ptr() % 16)
