"""Which keys each query may attend to, as structure instead of a matrix. Shapes: B batch, H heads, T queries, S keys.

The convention is that of `torch.nn.functional.scaled_dot_product_attention`: True means that the query may attend to
the key. fairseq's and PyTorch's `key_padding_mask` mean the opposite.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may see: a key must pass all three conditions; True means *may be seen*.

    Attributes:
        key_mask: [B, S] bool, False for padding; None when all keys are real.
        is_causal: query i sees keys j ≤ S − T + i (the last query sees every key).
        attn_mask: [T, S] bool, any other pattern shared by the batch; None when there is none.

    Raises:
        TypeError: a mask is of another type or number of dimensions.
    """

    key_mask: Tensor | None = None
    is_causal: bool = False
    attn_mask: Tensor | None = None

    def __post_init__(self) -> None:
        for name, shape in (("key_mask", "[B, S]"), ("attn_mask", "[T, S]")):
            mask = getattr(self, name)
            if mask is not None and (mask.dtype != torch.bool or mask.dim() != 2):
                raise TypeError(f"AttentionMask.{name} is {shape} of bool, not {list(mask.shape)} of {mask.dtype}")

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.key_mask is None and not self.is_causal and self.attn_mask is None

    def to_dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor | None:
        """The same as one matrix, [B or 1, 1, T or 1, S] bool, ready to broadcast; None if everything is seen."""
        dense = None
        if self.attn_mask is not None:
            dense = self.attn_mask[None, None]
        if self.is_causal and T != 1:
            earlier = torch.ones(T, S, dtype=torch.bool, device=device).tril_(S - T)[None, None]
            dense = earlier if dense is None else dense & earlier
        if self.key_mask is not None:
            real = self.key_mask[:, None, None]
            dense = real if dense is None else dense & real
        return dense

    def num_visible(self, T: int, S: int, like: Tensor) -> Tensor | int:
        """`count` as formulas want it: at least 1, of the type and on the device of `like`; S where all is seen."""
        if self.key_mask is None and self.attn_mask is None and (T == 1 or not self.is_causal):
            return max(S, 1)
        return self.count_visible(T, S, like.device).clamp(min=1).to(like.dtype)

    def slice_queries(self, start: int, stop: int, T: int, S: int) -> tuple["AttentionMask", int]:
        """What queries start…stop − 1 of T see, and how many keys, from the first, hold all of it."""
        keys = max(0, min(S, S - T + stop)) if self.is_causal else S
        return AttentionMask(
            None if self.key_mask is None else self.key_mask[:, :keys],
            self.is_causal,
            None if self.attn_mask is None else self.attn_mask[start:stop, :keys],
        ), keys

    def fill_hidden_(self, x: Tensor, value: float) -> Tensor:
        """Overwrite x [B, H, T, S] with `value` where a key is not visible."""
        if self.attn_mask is None and (not self.is_causal or x.shape[-2] == 1):
            return x if self.key_mask is None else x.masked_fill_(self._padding, value)
        return x.masked_fill_(~self.to_dense(*x.shape[-2:], device=x.device), value)

    def count_visible(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Number of keys each query sees, [B or 1, 1, T or 1, 1] int64: the n of length-dependent formulas."""
        if self.attn_mask is not None:
            return self.to_dense(T, S, device).sum(-1, keepdim=True)
        if not self.is_causal or T == 1:
            if self.key_mask is None:
                return torch.full((1, 1, 1, 1), S, device=device)
            return self._real
        last_key = torch.arange(S - T, S, device=device)
        if self.key_mask is None:
            return (last_key + 1).clamp(min=0)[None, None, :, None]
        if not S:
            return last_key.new_zeros(1, 1, 1, 1)
        seen = self.key_mask.cumsum(-1).index_select(-1, last_key.clamp(min=0))
        return (seen * (last_key >= 0))[:, None, :, None]

    @property
    def _padding(self) -> Tensor:
        """[B, 1, 1, S] bool, True for padding."""
        return self._kept("padding", lambda keys: ~keys[:, None, None])

    @property
    def _real(self) -> Tensor:
        """[B, 1, 1, 1] int64, number of real keys."""
        return self._kept("real", lambda keys: keys.sum(-1)[:, None, None, None])

    def _kept(self, name: str, of: Callable[[Tensor], Tensor]) -> Tensor:
        """What `of` makes of `keys`, as long as they are the same: decoding asks for it at every step.

        Not where nothing tells that they have changed, where it could not be trained with, or where it is compiled.
        """
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or self.key_mask.is_inference():
            return of(self.key_mask)
        version, kept = vars(self).get(name, (None, None))
        if version != self.key_mask._version:
            kept = of(self.key_mask)
            vars(self)[name] = self.key_mask._version, kept
        return kept
