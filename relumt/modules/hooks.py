"""Looking at every attention's and feed-forward layer's result while a block runs, without the model knowing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.modules.attention import MechanismAttention
from relumt.modules.layers import FeedForwardBuilder

AttentionHook = Callable[[str, MechanismAttention, AttentionOutput, AttentionMask], None]


def attentions(model: nn.Module) -> dict[str, MechanismAttention]:
    """Every attention of `model` with a mechanism, by its full name, e.g. "encoder.layers.0.self_attn"."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MechanismAttention)}


@contextmanager
def attention_hook(model: nn.Module, listener: AttentionHook, need: Need = Need.ROW_STATS) -> Iterator[None]:
    """Inside the block, call `listener(name, attention, attended, visible)` each time an attention has computed.

    Args:
        model: any module, wrapped in DDP or not.
        listener: gets what the attention gave back, with what `want` asks for.
        want: what each attention is to compute beyond its output.
    """
    tapped_attentions = attentions(model)
    for name, attention in tapped_attentions.items():
        attention.hooks.append((need, _named(name, listener)))
    try:
        yield
    finally:
        for attention in tapped_attentions.values():
            attention.hooks.pop()


@dataclass(frozen=True)
class FeedForwardActivations:
    """What a feed-forward layer did, [..., h slots] and [..., d].

    Attributes:
        scores: of the slots, after the activation (and its dropout, while training).
        output: of the layer, before dropout.
        residual: what the output is added to.
    """

    scores: Tensor
    output: Tensor
    residual: Tensor


@contextmanager
def feedforward_hook(model: nn.Module, listener: Callable[[str, FeedForwardActivations], None]) -> Iterator[None]:
    """Inside the block, call `listener(name, remembered)` each time a layer's feed-forward part has computed."""
    handles = []
    for name, layer in model.named_modules():
        if isinstance(layer, FeedForwardBuilder):
            handles += _feedforward_hooks(name, layer, listener)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _feedforward_hooks(
    name: str, layer: nn.Module, listener: Callable[[str, FeedForwardActivations], None]
) -> list[RemovableHandle]:
    residuals: list[Tensor] = []
    # Pre-norm: the residual is what the norm before fc1 is given; post-norm: what fc1 is given.
    before = layer.final_layer_norm if layer.normalize_before else layer.fc1

    def remember(module: nn.Module, inputs: tuple[Tensor]) -> None:
        residuals.append(inputs[0])

    def report(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        listener(name, FeedForwardActivations(inputs[0], output, residuals.pop()))

    return [before.register_forward_pre_hook(remember), layer.fc2.register_forward_hook(report)]


def _named(name: str, listener: AttentionHook) -> Callable[[MechanismAttention, AttentionOutput, AttentionMask], None]:
    return lambda attention, result, mask: listener(name, attention, result, mask)
