"""Which keys each query may attend to, as structure instead of a matrix. Shapes: B batch, H heads, T queries, S keys.

As in `torch.nn.functional.scaled_dot_product_attention`, True means that the query may attend to the key. fairseq's and
PyTorch's `key_padding_mask` mean the opposite. Causal masks differ: here the last query sees every key, and there the
first query sees one key. A key that a query may attend to is *visible* to it; any other key is *hidden*.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relumt.attention.tensor_cache import cached_on
from relumt.attention.transforms import is_transformed

SHAPES = {"key_mask": "[B, S]", "attn_mask": "[T, S] or [B, T, S]", "bias": "[B or 1, H or 1, T or 1, S]"}
"""The tensors of an `AttentionMask`, and their shapes."""


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query may attend to. A key is visible if all three conditions allow it; True means *allowed*.

    Attributes:
        key_mask: [B, S] bool, False for padding; None if all keys are real.
        is_causal: query i may attend to keys j ≤ S − T + i, so that the last query may attend to every key.
        attn_mask: [T, S] or [B, T, S] bool, any other pattern; None if there is none.
        padding_is_zero: the caller guarantees that keys and values at padding are 0, which saves zeroing them.
        bias: [B or 1, H or 1, T or 1, S], added to q·k/√D, as in ALiBi and T5; None for nothing. Of the fused kernels,
            only PyTorch's softmax computes it.

    What all layers need, such as numbers of visible keys, is cached on the masks. It is computed again after torch
    operators have edited a mask in place, but not after writes through `.data` or NumPy.

    Raises:
        TypeError: a mask has the wrong type or number of dimensions.
    """

    key_mask: Tensor | None = None
    is_causal: bool = False
    attn_mask: Tensor | None = None
    padding_is_zero: bool = False
    bias: Tensor | None = None

    def __post_init__(self) -> None:
        for name, dims in (("key_mask", (2,)), ("attn_mask", (2, 3))):
            mask = getattr(self, name)
            if mask is None:
                continue
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() not in dims:
                found = f"{list(mask.shape)} of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
                shape = SHAPES[name]
                raise TypeError(f"AttentionMask.{name} must be {shape} of torch.bool, True = may attend; got {found}")

    def check_shape(self, B: int, H: int, T: int, S: int) -> None:
        """Raise ValueError unless the masks and the bias have exactly the shapes that the class allows."""
        allowed: dict[str, list[tuple[int, ...]]] = {
            "key_mask": [(B, S)],
            "attn_mask": [(T, S), (B, T, S)],
            "bias": [(b, h, t, S) for b in (B, 1) for h in (H, 1) for t in (T, 1)],
        }
        for name, shape in SHAPES.items():
            tensor = getattr(self, name)
            if tensor is not None and tuple(tensor.shape) not in allowed[name]:
                sizes = f"B, H, T, S = {B}, {H}, {T}, {S}"
                raise ValueError(f"AttentionMask.{name} must be {shape} with {sizes}; got {list(tensor.shape)}")

    def zero_padding(self, x: Tensor) -> Tensor:
        """Return keys or values x [B, H, S, D] with 0 at padding.

        A weight of 0 does not hide a non-finite value, because 0·NaN is NaN. For the same reason, a gradient of 0 does
        not hide a non-finite key.
        """
        return x if self.key_mask is None or self.padding_is_zero else x.where(self.key_mask[:, None, :, None], 0)

    def with_zero_padding(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, "AttentionMask"]:
        """Return k and v [B, H, S, D] with 0 at padding, and the mask that says so."""
        if self.key_mask is None or self.padding_is_zero:
            return k, v, self
        return self.zero_padding(k), self.zero_padding(v), replace(self, padding_is_zero=True)

    def to_dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor | None:
        """Return the mask as one matrix [B or 1, 1, T or 1, S] bool, ready to broadcast; None without a mask."""
        dense = None
        if self.attn_mask is not None:
            dense = self.attn_mask[None, None] if self.attn_mask.dim() == 2 else self.attn_mask[:, None]
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

    def fill_hidden(self, x: Tensor, value: float) -> Tensor:
        """Return x [B, H, T, S] with `value` at hidden keys; the gradient there is 0. The result may be x itself."""
        dense = self.to_dense(x.shape[-2], x.shape[-1], x.device)
        return x if dense is None else x.where(dense, value)

    def _is_one_row(self, T: int) -> bool:
        """Whether all of the T queries of a sentence may attend to the same keys."""
        return self.attn_mask is None and (T == 1 or not self.is_causal)


UNMASKED = AttentionMask()
"""Every query may attend to every key."""


def _count_past_keys(key_mask: Tensor, T: int) -> Tensor:
    """Return how many real keys each of T queries sees with a causal mask, [B, 1, T, 1] int64; S > 0."""
    S = key_mask.shape[1]
    last_key = torch.arange(S - T, S, device=key_mask.device)
    count = key_mask.cumsum(-1).index_select(-1, last_key.clamp(min=0))
    return (count * (last_key >= 0))[:, None, :, None]  # queries that come before the first key have none


def split_mask(mask: Tensor, B: int, H: int, T: int, S: int) -> tuple[Tensor, Tensor | None]:
    """Return `attn_mask` and `bias` of an `AttentionMask` for a mask as PyTorch's modules take it.

    A GPU waits for the answer to what a mask of numbers contains.

    Args:
        mask: [T, S], [B, T, S], [B·H, T, S] or [B or 1, H or 1, T or 1, S]: bool, True for what is hidden; or numbers
            that are added to scores, −∞ for what is hidden.
        B, H, T, S: the sizes of attention.

    Raises:
        TypeError: the mask is neither bool nor of numbers that can be −∞.
        ValueError: the mask has another shape, or hides different keys from different heads.
    """
    is_added = mask.is_floating_point()
    if not is_added and mask.dtype != torch.bool:
        raise TypeError(f"expected a mask of torch.bool or of floating-point numbers, got {mask.dtype}")
    if mask.dim() == 3:  # [B, T, S] -> [B, 1, T, S], [B·H, T, S] -> [B, H, T, S]
        mask = mask.unflatten(0, (-1, H)) if mask.shape[0] == B * H else mask[:, None]
    elif mask.dim() == 2:
        mask = mask[None, None]
    hidden = mask.isneginf() if is_added else mask
    if hidden.dim() != 4 or any(size not in (1, full) for size, full in zip(hidden.shape, (B, H, T, S), strict=True)):
        raise ValueError(f"expected a mask for B, H, T, S = {B}, {H}, {T}, {S}, found {list(mask.shape)}")
    if hidden.shape[1] > 1 and not hidden.eq(hidden[:, :1]).all():
        raise ValueError("expected a mask that hides the same keys from all heads, found different ones")
    visible = ~hidden[:, 0].expand(-1, T, S)
    bias = mask.masked_fill(hidden, 0.0).expand(-1, -1, -1, S) if is_added else None
    return visible[0] if len(visible) == 1 else visible, bias if bias is not None and bias.any() else None
