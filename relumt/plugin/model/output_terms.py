"""A hook that splits the output of each attention module into one term per head and key (Kobayashi et al. 2020).

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
from relumt.plugin.model.hooks import attention_hook, named_attentions


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

    `result` includes the weights. `terms` is None if the mechanism has no weights, or overrides
    `postprocess_heads` without `head_map`. The passes must be without an incremental state.
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
