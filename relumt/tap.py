"""Looking at every attention's result while a block runs, without the model knowing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from relumt.attention import Attended, Visible, Want
from relumt.modules.attention import MechanismAttention

Listener = Callable[[str, MechanismAttention, Attended, Visible], None]


def attentions(model: nn.Module) -> dict[str, MechanismAttention]:
    """Every attention of `model` with a mechanism, by its full name, e.g. "encoder.layers.0.self_attn"."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MechanismAttention)}


@contextmanager
def tapped(model: nn.Module, listener: Listener, want: Want = Want.STATISTICS) -> Iterator[None]:
    """Inside the block, call `listener(name, attention, attended, visible)` each time an attention has computed.

    Args:
        model: any module, wrapped in DDP or not.
        listener: gets what the attention gave back, with what `want` asks for.
        want: what each attention is to compute beyond its output.
    """
    tapped_attentions = attentions(model)
    for name, attention in tapped_attentions.items():
        attention.taps.append((want, _named(name, listener)))
    try:
        yield
    finally:
        for attention in tapped_attentions.values():
            attention.taps.pop()


def _named(name: str, listener: Listener) -> Callable[[MechanismAttention, Attended, Visible], None]:
    return lambda attention, attended, visible: listener(name, attention, attended, visible)
