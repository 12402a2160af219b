"""Hooks that observe all attention or feed-forward layers of a model while a `with` block runs.

Shapes: T B H S D, E = H·D.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Mechanism, Need, at_least_float32
from relumt.attention.metrics.norm_weighted_attention import OutputTerms
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.layers import FeedForwardMixin

AttentionHook = Callable[[str, MechanismAttention, AttentionOutput, AttentionMask], None]


def named_attentions(model: nn.Module) -> dict[str, MechanismAttention]:
    """Return all `MechanismAttention`s of `model` by their full name, e.g. "encoder.layers.0.self_attn"."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MechanismAttention)}


def named_feedforwards(model: nn.Module) -> dict[str, FeedForwardMixin]:
    """Return all layers of `model` by their full name, e.g. "encoder.layers.0": each has one feed-forward layer."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, FeedForwardMixin)}


@contextmanager
def attention_hook(model: nn.Module, hook: AttentionHook, need: Need = Need.ROW_STATS) -> Iterator[None]:
    """Call `hook(name, attention, result, mask)` after each forward pass of an attention module inside the block.

    Args:
        model: any module; it may be wrapped in DistributedDataParallel.
        hook: receives the mechanism's result, including what `need` asks for.
        need: what the mechanisms return beyond their output.
    """
    attentions = named_attentions(model)
    for name, attention in attentions.items():
        attention.hooks.append((need, partial(hook, name)))
    try:
        yield
    finally:
        for attention in attentions.values():
            attention.hooks.pop()


FeedForwardHook = Callable[[str, Tensor, Tensor, Tensor], None]


@contextmanager
def feedforward_hook(model: nn.Module, hook: FeedForwardHook) -> Iterator[None]:
    """Call `hook(layer_name, scores, output, residual)` after every forward pass of a feed-forward layer.

    With h memory slots and model size d, `scores` [..., h] are those of the slots after the activation (and its dropout
    in training), `output` [..., d] is that of the layer before dropout, and `residual` [..., d] what it is added to.
    """
    residuals: list[Tensor] = []  # of the layer that computes

    def store_residual(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        residuals.append(inputs[0])

    def call_hook(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        hook(name, inputs[0], output, residuals.pop())

    with ExitStack() as handles:
        for name, layer in named_feedforwards(model).items():
            # The residual is the input of fc1 in post-norm layers, of the norm before it in pre-norm layers.
            first_module = layer.final_layer_norm if layer.normalize_before else layer.fc1
            handles.enter_context(first_module.register_forward_pre_hook(store_residual))
            handles.enter_context(layer.fc2.register_forward_hook(partial(call_hook, name)))
        yield


@dataclass(frozen=True)
class BatchTerms(OutputTerms):
    """`OutputTerms` of a whole batch: weights [B, H, T, S], values [B, H, S, D], gain [T, B, E] or None."""

    def select(self, row: int, queries: Tensor, keys: Tensor) -> OutputTerms:
        """Return the terms of one sentence.

        Args:
            row: its index in the batch.
            queries: which queries are not padding, [T] bool.
            keys: which keys are not padding, [S] bool.
        """
        return OutputTerms(
            self.weights[row][:, queries][:, :, keys],
            self.values[row][:, keys],
            None if self.gain is None else self.gain[queries, row],
            self.subtracts_mean,
            self.projection,
        )


TermsHook = Callable[[str, MechanismAttention, AttentionOutput, BatchTerms | None], None]


@contextmanager
def output_terms_hook(model: nn.Module, hook: TermsHook) -> Iterator[None]:
    """Call `hook(name, attention, result, terms)` after each forward pass of an attention module inside the block.

    The terms are those of Kobayashi et al. 2020, one per head and key. `terms` is None if the mechanism has no weights,
    or overrides `postprocess_heads` without `head_map`. `result` includes the weights. The passes must be without an
    incremental state.
    """
    inputs: dict[str, tuple[Tensor, Tensor]] = {}  # query [T, B, E] and value [S, B, E] of each module

    def store(name: str, attention: MechanismAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = signature(attention.forward).bind(*args, **kwargs).arguments
        inputs[name] = arguments["query"], arguments["value"]

    def call(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        hook(name, attention, result, _collect_terms(attention, result, *inputs.pop(name)))

    with ExitStack() as handles:
        for name, attention in named_attentions(model).items():
            handle = attention.register_forward_pre_hook(partial(store, name), with_kwargs=True)
            handles.enter_context(handle)
        with attention_hook(model, call, Need.WEIGHTS):
            yield


def _collect_terms(
    attention: MechanismAttention, result: AttentionOutput, query: Tensor, value: Tensor
) -> BatchTerms | None:
    if result.weights is None or not _knows_head_map(attention.mechanism):
        return None
    B, H, T, D = result.output.shape
    heads = result.output.permute(2, 0, 1, 3).reshape(T, B, H * D)  # [B, H, T, D] -> [T, B, H, D] -> [T, B, E]
    gain, subtracts_mean = attention.mechanism.head_map(heads)
    if attention.gate is not None:
        gates = attention.gate.gates(query).expand(T, B, H, D).flatten(2)
        gain = gates if gain is None else gain * gates
    values = attention.v_proj(value).unflatten(-1, (H, D)).permute(1, 2, 0, 3)  # [S, B, E] -> [B, H, S, D]
    return BatchTerms(
        at_least_float32(result.weights),
        at_least_float32(values),
        None if gain is None else at_least_float32(gain),
        subtracts_mean,
        at_least_float32(attention.out_proj.weight),
    )


def _knows_head_map(mechanism: Mechanism) -> bool:
    """Return whether `head_map` describes the `postprocess_heads` of the mechanism, not an overridden one."""
    names = ("head_map", "postprocess_heads")
    map_owner, owner = (next(base for base in type(mechanism).__mro__ if name in vars(base)) for name in names)
    return issubclass(map_owner, owner)
