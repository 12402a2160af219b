"""Which keys each query may attend to, as structure instead of a matrix. Shapes: B batch, H heads, T queries, S keys.

As in `torch.nn.functional.scaled_dot_product_attention`, True means that the query may attend to the key. fairseq's and
PyTorch's `key_padding_mask` mean the opposite. Causal masks differ: here the last query sees every key, and there the
first query sees one key. A key that a query may attend to is *visible* to it; any other key is *hidden*.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relumt.attention.padding import fill_hidden, zero_padding
from relumt.attention.tensor_cache import cached_on
from relumt.attention.transforms import is_transformed

MIN_BITWISE_ELEMENTS = 1 << 14
"""From this size on, hidden keys are overwritten by operations on bits on a CPU: `masked_fill_` takes 2 to 30 times as
long there, but is one operator instead of several."""


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may attend to. A key is visible if all three conditions allow it; True means *allowed*.

    Attributes:
        key_mask: [B, S] bool, False for padding; None if all keys are real.
        is_causal: query i may attend to keys j ≤ S − T + i, so that the last query may attend to every key.
        attn_mask: [T, S] bool, any other pattern, shared by the batch; None if there is none.
        padding_is_zero: the caller guarantees that keys and values at padding are 0, which saves zeroing them.

    What all layers need, such as numbers of visible keys, is cached on the masks. It is computed again after torch
    operators have edited a mask in place, but not after writes through `.data` or NumPy.

    Raises:
        TypeError: a mask has the wrong type or number of dimensions.
    """

    key_mask: Tensor | None = None
    is_causal: bool = False
    attn_mask: Tensor | None = None
    padding_is_zero: bool = False

    def __post_init__(self) -> None:
        for name, shape in (("key_mask", "[B, S]"), ("attn_mask", "[T, S]")):
            mask = getattr(self, name)
            if mask is None:
                continue
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 2:
                found = f"{list(mask.shape)} of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
                raise TypeError(f"AttentionMask.{name} must be {shape} of torch.bool, True = may attend; got {found}")

    def clone(self) -> "AttentionMask":
        """Return the same mask in tensors of its own."""
        key_mask, attn_mask = (None if x is None else x.clone() for x in (self.key_mask, self.attn_mask))
        return replace(self, key_mask=key_mask, attn_mask=attn_mask)

    def check_shape(self, B: int, T: int, S: int) -> None:
        """Raise ValueError unless the masks have exactly the shapes [B, S] and [T, S]; nothing is broadcast."""
        for name, mask, names, sizes in (
            ("key_mask", self.key_mask, "B, S", [B, S]),
            ("attn_mask", self.attn_mask, "T, S", [T, S]),
        ):
            if mask is not None and mask.shape != (sizes[0], sizes[1]):
                raise ValueError(f"AttentionMask.{name} must be [{names}] = {sizes}; got {list(mask.shape)}")

    def zero_padding(self, x: Tensor) -> Tensor:
        """Return keys or values x [B, H, S, D] with 0 at padding."""
        return x if self.key_mask is None or self.padding_is_zero else zero_padding(x, self.key_mask)

    def with_zero_padding(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, "AttentionMask"]:
        """Return k and v [B, H, S, D] with 0 at padding, and the mask that says so."""
        if self.key_mask is None or self.padding_is_zero:
            return k, v, self
        return self.zero_padding(k), self.zero_padding(v), replace(self, padding_is_zero=True)

    def to_dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor | None:
        """Return the mask as one matrix [B or 1, 1, T or 1, S] bool, ready to broadcast; None without a mask."""
        dense = None
        if self.attn_mask is not None:
            dense = self.attn_mask[None, None]
        if self.is_causal and T != 1:
            not_future = torch.ones(T, S, dtype=torch.bool, device=device).tril_(S - T)[None, None]
            dense = not_future if dense is None else dense & not_future
        if self.key_mask is not None:
            is_real = self.key_mask[:, None, None]
            dense = is_real if dense is None else dense & is_real
        return dense

    def num_visible(self, T: int, S: int, like: Tensor) -> Tensor | int:
        """Return the n of length-dependent formulas: `count_visible`, but at least 1 to allow dividing by it.

        A tensor has the dtype and device of `like`. If nothing is hidden, n is the int S.
        """
        if self.key_mask is None and self._is_one_row(T):
            return max(S, 1)

        def compute(_: Tensor) -> Tensor:
            return self.count_visible(T, S, like.device).clamp(min=1).to(like.dtype)

        if self.key_mask is None or self.attn_mask is not None:
            return compute(like)
        return cached_on(self.key_mask, ("num_visible", T, S, self.is_causal, like.dtype), compute)

    def log_num_visible(self, T: int, S: int, like: Tensor) -> Tensor:
        """Return log n, [B or 1, 1, T or 1, 1] of the dtype and device of `like`."""
        n = self.num_visible(T, S, like)
        if isinstance(n, Tensor):
            return n.log()
        if torch.compiler.is_compiling():  # math.log would make S a constant, and compile again for every length
            return like.new_full((1, 1, 1, 1), n).log()
        # new_full fills on the GPU; new_tensor would copy from the host, and wait for it.
        return like.new_full((1, 1, 1, 1), math.log(n))

    def count_visible(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return the number of keys that each query may attend to, [B or 1, 1, T or 1, 1] int64."""
        if self.attn_mask is not None and (dense := self.to_dense(T, S, device)) is not None:
            return dense.sum(-1, keepdim=True)
        if self._is_one_row(T):
            if self.key_mask is None:
                return torch.full((1, 1, 1, 1), S, device=device)
            return cached_on(self.key_mask, "num_real_keys", lambda keys: keys.sum(-1)[:, None, None, None])
        if self.key_mask is None:
            return torch.arange(S - T + 1, S + 1, device=device).clamp_(min=0)[None, None, :, None]
        if not S:
            return torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=device)
        return cached_on(self.key_mask, ("num_past_keys", T), lambda keys: _count_past_keys(keys, T))

    def every_query_sees_a_key(self, T: int, S: int, device: torch.device) -> bool:
        """Return whether no query is without visible keys.

        False on a GPU and in compiled code, which must not wait, and under transforms: tensors may lack values there.
        """
        if device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
            return False
        return bool(self.count_visible(T, S, device).all())

    def fill_hidden_(self, x: Tensor, value: float) -> Tensor:
        """Return x [B, H, T, S] with `value` at hidden keys; x may be overwritten."""
        T, S = x.shape[-2:]
        if x.device.type == "cpu" and x.numel() >= MIN_BITWISE_ELEMENTS:
            dense = self.to_dense(T, S, x.device)
            return x if dense is None else fill_hidden(x, dense, value)
        if self._is_one_row(T):
            if self.key_mask is None:
                return x
            hidden = cached_on(self.key_mask, "is_padding", lambda keys: ~keys[:, None, None])
        else:
            dense = self.to_dense(T, S, x.device)
            if dense is None:
                return x
            hidden = ~dense
        return x.masked_fill(hidden, value) if is_transformed() else x.masked_fill_(hidden, value)

    def _is_one_row(self, T: int) -> bool:
        """Whether all of the T queries of a sentence may attend to the same keys."""
        return self.attn_mask is None and (T == 1 or not self.is_causal)


def _count_past_keys(key_mask: Tensor, T: int) -> Tensor:
    """Return how many real keys each of T queries sees with a causal mask, [B, 1, T, 1] int64; S > 0."""
    S = key_mask.shape[1]
    last_key = torch.arange(S - T, S, device=key_mask.device)
    count = key_mask.cumsum(-1).index_select(-1, last_key.clamp(min=0))
    return (count * (last_key >= 0))[:, None, :, None]  # queries that come before the first key have none


def hidden_pairs(attn_mask: Tensor) -> Tensor:
    """Return which pairs a mask as PyTorch's and fairseq's attention modules take it hides, bool.

    Those are the pairs with True, or with −∞ in a mask that is added to scores.

    Raises:
        ValueError: the mask adds other numbers to scores, which not every mechanism could follow.
    """
    if not attn_mask.is_floating_point():
        return attn_mask.bool()
    hidden = attn_mask.isneginf()
    if attn_mask.masked_fill(hidden, 0.0).any():
        raise ValueError(
            "expected an attn_mask of 0 and -inf, found other numbers; add biases to scores in a Mechanism"
        )
    return hidden
