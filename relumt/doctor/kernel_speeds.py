"""Times of the kernels and of `scaled_dot_product_attention`, by the clock of a GPU.

Shapes: B batch, H heads, T queries and as many keys, D head size.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.kernels.self_check import KernelConfig
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from relumt.attention.mask import AttentionMask
from relumt.doctor.isolated_calls import Failure, isolated_calls
from relumt.kernel_timing import kernel_seconds

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
"""Name of each backend of `scaled_dot_product_attention`."""

TIME_LIMIT = 300
"""Seconds for one configuration."""
DROPOUT = 0.1
KERNEL = "Triton"

Attend = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]
Seconds = dict[str, tuple[float, float]]
"""System → seconds of the forward and of the backward pass."""


class Shape(NamedTuple):
    """B, H and T."""

    batch: int
    heads: int
    length: int


SHORT_SENTENCES, LONG_SENTENCES, INHIBITOR, INTERPRETED = (
    Shape(128, 8, 64), Shape(8, 8, 1024), Shape(4, 8, 256), Shape(1, 1, 16),
)  # fmt: skip
"""Short and long sentences; fewer for the Inhibitor, which takes more time per pair; the least in the interpreter."""


def call_shape(config: KernelConfig, device: torch.device) -> Shape:
    """Return the shape to time a configuration in."""
    if device.type == "cpu":
        return INTERPRETED
    if not isinstance(config, PointwiseConfig):
        return INHIBITOR
    return SHORT_SENTENCES if config.query_kind == "short" else LONG_SENTENCES


def time_kernels(
    configs: Sequence[KernelConfig], device: torch.device
) -> Iterator[tuple[KernelConfig, Seconds | Failure]]:
    """Yield the times of each configuration and of the backends that accept its call, in a process of their own."""
    measured = isolated_calls(functools.partial(time_systems, device), configs, TIME_LIMIT)
    yield from zip(configs, measured, strict=True)


def time_systems(device: torch.device, config: KernelConfig) -> Seconds:
    """Return the times of a kernel and of the backends that accept its call."""
    mask = _make_mask(config, device)
    q, k, v = _make_inputs(config, device)
    if isinstance(config, PointwiseConfig):
        times = {KERNEL: _time_passes(_pointwise(config, mask, q), [q, k, v], device)}
    else:
        full = [x.detach().float().requires_grad_() for x in (q, k, v)]
        times = {KERNEL: _time_passes(_inhibitor(config, mask), full, device)}
    for name, backend in BACKENDS.items():
        softmax = softmax_by(backend, mask, q.shape[2], device, _dropout(config))
        try:
            times[name] = _time_passes(softmax, [q, k, v], device)
        except RuntimeError:  # the backend does not accept the call, or memory does not suffice
            continue
    return times


def _make_inputs(config: KernelConfig, device: torch.device) -> list[Tensor]:
    """Return q and k [B, H, T, D], and v, which may be wider; for the Inhibitor in the type that it is called in."""
    if isinstance(config, PointwiseConfig):
        dtype, value_dim = config.dtype, config.head_dim
    else:
        dtype, value_dim = torch.float16 if config.half else torch.float32, config.value_dim
    generator, shape = torch.Generator().manual_seed(1), call_shape(config, device)
    sizes = (config.head_dim, config.head_dim, value_dim)
    return [torch.randn(*shape, size, generator=generator).to(device, dtype).requires_grad_() for size in sizes]


def _dropout(config: KernelConfig) -> float:
    return DROPOUT if config.has_dropout else 0.0


def _pointwise(config: PointwiseConfig, mask: AttentionMask, q: Tensor) -> Attend:
    from relumt.attention.kernels import pointwise_triton  # here, because Triton is optional and slow to import

    B, _, T, D = q.shape
    factor = torch.full((B, T), (D * T / 2) ** -0.5, device=q.device)
    bias = torch.full_like(factor, -math.log(T)) if config.has_bias else None
    params = PointwiseParams(config.activation, factor, bias)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        results = pointwise_triton.attend(
            q, k, v, params, mask.key_mask, mask.is_causal, _dropout(config), config.has_row_stats, config.output_dtype
        )
        return tuple(x for x in results if x is not None)

    return attend


def _inhibitor(config: InhibitorConfig, mask: AttentionMask) -> Attend:
    from relumt.attention.kernels import inhibitor_triton  # here, as above

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        shift = torch.full((q.shape[1], 1, 1), 0.5, device=q.device)
        arguments = (mask.key_mask, mask.is_causal, _dropout(config), config.half)
        return (inhibitor_triton.attend(q, k, v, float(config.head_dim), shift, *arguments),)

    return attend


def _time_passes(attend: Attend, inputs: list[Tensor], device: torch.device) -> tuple[float, float]:
    outputs = attend(*inputs)
    grads = [torch.ones_like(x) for x in outputs]

    def backward() -> None:
        torch.autograd.grad(outputs, inputs, grads, retain_graph=True)

    return kernel_seconds(lambda: attend(*inputs), device), kernel_seconds(backward, device)


def _make_mask(config: KernelConfig, device: torch.device) -> AttentionMask:
    """Return the mask of a call, with sentences from half the length on if there is padding."""
    B, _, T = call_shape(config, device)
    if not config.has_key_mask:
        return AttentionMask(None, config.is_causal)
    lengths = torch.linspace(0.5, 1, B).mul(T).long()
    return AttentionMask((torch.arange(T) < lengths[:, None]).to(device), config.is_causal)


def softmax_by(backend: SDPBackend, mask: AttentionMask, length: int, device: torch.device, dropout_p: float) -> Attend:
    """Return `scaled_dot_product_attention` with one backend; it raises RuntimeError if that does not accept the call.

    Args:
        backend: what computes.
        mask: what each query may attend to.
        length: T, the number of queries and of keys.
        device: where the tensors are.
        dropout_p: probability of dropping a weight.
    """
    is_causal = mask.is_causal and mask.key_mask is None
    attn_mask = None if is_causal else mask.to_dense(length, length, device)  # made once, so it takes no time

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        with sdpa_kernel(backend):
            return (F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p=dropout_p, is_causal=is_causal),)

    return attend


def format_times(times: dict[KernelConfig, Seconds], device: torch.device) -> str:
    """Return a table of milliseconds, forward and backward, with a column for each system."""
    systems = [KERNEL, *BACKENDS]
    rows = []
    for config, measured in times.items():
        shape = "×".join(map(str, call_shape(config, device)))
        cells = ("/".join(f"{1e3 * x:.3g}" for x in measured[name]) if name in measured else "" for name in systems)
        rows.append([str(config), shape, *cells])
    return tabulate(rows, ["kernel", "B×H×T", *systems], disable_numparse=True)
