"""What the self-check computes for `pointwise_triton`. Shapes: B batch, H heads, T queries, S keys, D head size.

Queries and keys are multiples of ¼, so every product q·k is exact in every type: rounding cannot decide whether ReLU
lets a score through, and a gradient differs from float64's by rounding alone.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.kernels import pointwise_operator
from relumt.attention.kernels.pointwise_launch_configs import SHORT, call_kind
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams, exponent, is_plain
from relumt.attention.kernels.self_check_result import Result, compare, make_mask, probe_dropout

B, H = 2, 2
LENGTHS = {"short": 40}
LONG = 150
"""Length in other kinds of calls: more than a block of 128, and no multiple of any block's size."""
DROPOUT = 40 / 128  # the kernels round it to a multiple of 1/128 or 1/256
SEED = 1
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 5e-3}


@dataclass(frozen=True)
class PointwiseConfig:
    """What decides which code Triton compiles for a call, apart from strides and alignment.

    Attributes:
        activation: φ.
        dtype: dtype of q, k and v.
        output_dtype: dtype of the output.
        head_dim: D.
        query_kind, key_kind: kinds of calls by the number of queries and of keys, see `pointwise_launch_configs`.
        has_bias, has_key_mask, is_causal, has_dropout: which options the call uses.
        row_sums: how many row sums it returns.
        has_factor_per_query: whether queries of a sentence have different factors.
        kernel: the module that computes it.
    """

    activation: Activation
    dtype: torch.dtype
    output_dtype: torch.dtype
    head_dim: int
    query_kind: str
    key_kind: str
    has_bias: bool = False
    has_key_mask: bool = False
    is_causal: bool = False
    row_sums: int = 0
    has_dropout: bool = False
    has_factor_per_query: bool = True
    kernel: str = "pointwise_triton"

    @classmethod
    def from_call(
        cls, q: Tensor, k: Tensor, params: PointwiseParams, key_mask: Tensor | None, is_causal: bool, dropout_p: float,
        row_sums: int, output_dtype: torch.dtype, kernel: str,
    ) -> "PointwiseConfig":  # fmt: skip
        """Describe a call of `pointwise_operator.attend`, whose arguments these are."""
        is_plain_call = is_plain(params.activation, params.bias is not None, row_sums)
        query_kind, key_kind = (call_kind(x, dropout_p > 0, is_plain_call) for x in (q, k))
        return cls(
            params.activation, q.dtype, output_dtype, q.shape[3], query_kind, key_kind, params.bias is not None,
            key_mask is not None, is_causal, row_sums, dropout_p > 0, params.factor.shape[1] > 1, kernel,
        )  # fmt: skip

    @classmethod
    def list_by_length(
        cls, activation: Activation, dtype: torch.dtype, output_dtype: torch.dtype, head_dim: int, has_bias: bool,
        has_key_mask: bool, is_causal: bool, row_sums: int, has_dropout: bool, has_factor_per_query: bool,
    ) -> "list[PointwiseConfig]":  # fmt: skip
        """Return the configurations of calls that differ in their lengths alone."""
        is_plain_call = is_plain(activation, has_bias, row_sums)
        examples = (torch.empty(1, 1, length, head_dim, dtype=dtype) for length in (SHORT, SHORT + 1))
        kinds = dict.fromkeys(call_kind(x, has_dropout, is_plain_call) for x in examples)
        options = (has_bias, has_key_mask, is_causal, row_sums, has_dropout, has_factor_per_query)
        return [
            cls(activation, dtype, output_dtype, head_dim, query_kind, key_kind, *options)
            for query_kind in kinds
            for key_kind in kinds
        ]

    def __str__(self) -> str:
        """Return a name for the log and for `relumt doctor`."""
        flags = ("has_bias", "has_key_mask", "is_causal", "has_dropout")
        words = [flag.partition("_")[2].replace("_", " ") for flag in flags if getattr(self, flag)]
        words += [f"{self.row_sums} row sums"] if self.row_sums else []
        types = " to ".join(str(x).removeprefix("torch.") for x in (self.dtype, self.output_dtype))
        kinds = f"{self.query_kind} queries, {self.key_kind} keys"
        words += [] if self.kernel == "pointwise_triton" else [f"by {self.kernel}"]
        return ", ".join([f"{self.activation} attention in {types}", f"head size {self.head_dim}", kinds, *words])


def results(config: PointwiseConfig, device: torch.device) -> Iterator[Result]:
    """Compute the output, the row sums and all gradients with the kernels and in float64."""
    q, k, v, grads = _random_inputs(config)
    T, S = q.shape[2], k.shape[2]
    mask, visible = make_mask(config.has_key_mask, config.is_causal, B, T, S)
    n = mask.count_visible(T, S).clamp(min=1).float().expand(B, 1, T, 1)[:, 0, :, 0]  # -> [B, T]
    factor = (config.head_dim * n / 2).rsqrt()
    factor = factor if config.has_factor_per_query else factor[:, :1]
    bias = 0.25 - n.log() if config.activation == "sigmoid" else torch.ones(1, 1)  # a smaller one to the 8th underflows
    params = PointwiseParams(config.activation, factor, bias if config.has_bias else None)
    attend = functools.partial(_attend, config, params, mask.key_mask, device)

    dropout_factor = torch.ones(B, H, T, S, dtype=torch.float64)
    if config.has_dropout:
        # Equal queries and keys give every visible key a positive weight.
        kept = probe_dropout(attend, torch.ones_like(q), torch.ones_like(k), config.head_dim).double()
        share = kept[visible.expand(B, H, T, S)].mean()[None]
        yield Result("share of weights that dropout keeps", share, torch.full((1,), 1 - DROPOUT), 0.1)
        dropout_factor = kept / (1 - DROPOUT)
    exact = functools.partial(_exact, params, visible, dropout_factor)
    names = ["output", "sums of weights", "sums of w log w"][: len(grads)] + [f"gradient of {x}" for x in "qkv"]
    yield from compare(attend, exact, [q, k, v], grads, dict.fromkeys(names, TOLERANCE[config.dtype]))


def _random_inputs(config: PointwiseConfig) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return q, k, v and the gradients of the outputs, in float64 but representable in the type of the call."""
    generator = torch.Generator().manual_seed(SEED)
    T, S = (LENGTHS.get(kind, LONG) for kind in (config.query_kind, config.key_kind))
    q, k = (torch.randn(B, H, n, config.head_dim, generator=generator).mul(4).round().div(4) for n in (T, S))
    v, grad = (torch.randn(B, H, n, config.head_dim, generator=generator).to(config.dtype) for n in (S, T))
    row_grads = [torch.randn(B, H, T, generator=generator) for _ in range(config.row_sums)]
    return q.double(), k.double(), v.double(), [x.double() for x in (grad, *row_grads)]


def _attend(
    config: PointwiseConfig, params: PointwiseParams, key_mask: Tensor | None, device: torch.device, *qkv: Tensor
) -> tuple[Tensor | None, ...]:
    """Call the kernels on a device, with the same dropout each time."""
    bias = None if params.bias is None else params.bias.to(device)
    q, k, v = (x.to(device, config.dtype) for x in qkv)
    torch.manual_seed(SEED)  # of the dropout; `self_check` restores the generator
    return pointwise_operator.attend(
        q, k, v, PointwiseParams(params.activation, params.factor.to(device), bias),
        None if key_mask is None else key_mask.to(device), config.is_causal, DROPOUT if config.has_dropout else 0.0,
        config.row_sums, config.output_dtype, config.kernel,
    )  # fmt: skip


def _exact(
    params: PointwiseParams, visible: Tensor, dropout_factor: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the output and both row sums in float64."""
    scores = q @ k.mT * params.factor.double()[:, None, :, None]
    if params.bias is not None:
        scores = scores + params.bias.double()[:, None, :, None]
    weights = scores.sigmoid() if params.activation == "sigmoid" else scores.relu() ** exponent(params.activation)
    weights = weights.masked_fill(~visible, 0.0)
    w_log_w = torch.xlogy(weights, weights.clamp(min=1e-300))  # unclamped, its gradient at 0 would not be finite
    return (weights * dropout_factor) @ v, weights.sum(-1), w_log_w.sum(-1)
