"""Hooks that observe the results of all attention or feed-forward layers of a model while a `with` block runs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.layers import FeedForwardMixin

AttentionHook = Callable[[str, MechanismAttention, AttentionOutput, AttentionMask], None]


def named_attentions(model: nn.Module) -> dict[str, MechanismAttention]:
    """Return all `MechanismAttention`s of `model` by their full name, e.g. "encoder.layers.0.self_attn"."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MechanismAttention)}


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


@dataclass(frozen=True)
class FeedForwardActivations:
    """Intermediate results of a feed-forward layer with h memory slots and model size d.

    Attributes:
        scores: the scores of the slots, [..., h], after the activation (and its dropout in training).
        output: the output of the layer, [..., d], before dropout.
        residual: what the output is added to, [..., d].
    """

    scores: Tensor
    output: Tensor
    residual: Tensor


FeedForwardHook = Callable[[str, FeedForwardActivations], None]


@contextmanager
def feedforward_hook(model: nn.Module, hook: FeedForwardHook) -> Iterator[None]:
    """Call `hook(layer_name, activations)` after every forward pass of a feed-forward layer inside the block."""
    residuals: list[Tensor] = []  # of the layer that computes

    def store_residual(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        residuals.append(inputs[0])

    def call_hook(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        hook(name, FeedForwardActivations(inputs[0], output, residuals.pop()))

    with ExitStack() as handles:
        for name, layer in model.named_modules():
            if isinstance(layer, FeedForwardMixin):
                # The residual is the input of fc1 in post-norm layers, of the norm before it in pre-norm layers.
                first_module = layer.final_layer_norm if layer.normalize_before else layer.fc1
                handles.enter_context(first_module.register_forward_pre_hook(store_residual))
                handles.enter_context(layer.fc2.register_forward_hook(partial(call_hook, name)))
        yield
