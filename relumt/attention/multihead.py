"""Multi-head attention with any mechanism, in the place of PyTorch's. Shapes: B H T S D, E = H·D.

    MultiheadAttention(E, H, mechanism="rela_g")   for `torch.nn.MultiheadAttention`, also in nn.TransformerEncoderLayer
    attend(q, k, v, mechanism="relu")              for `torch.nn.functional.scaled_dot_product_attention`

Arguments of the same name have the same meaning, with one difference: for T ≠ S, `is_causal` lets the last query see
every key, as decoding with a cache needs it, while PyTorch aligns the first query with the first key. `num_kv_heads`
groups queries: each head of k and v serves H/num_kv_heads consecutive heads of q.
"""

from typing import Any

import torch
from torch import Tensor, nn

from relumt.attention.gate import OutputGate
from relumt.attention.mask import AttentionMask, split_mask
from relumt.attention.mechanism import Need
from relumt.attention.precision import cast_saturating
from relumt.attention.qk_norm import QKNorm
from relumt.attention.registry import MECHANISMS


class MultiheadAttention(nn.Module):
    """Projections, a mechanism on the heads, its norm, and the output projection.

    Args:
        embed_dim: E, the size of queries and outputs.
        num_heads: H.
        dropout: probability of dropping a weight in training.
        bias: whether the projections have biases, which the initialization of `relu` needs.
        kdim, vdim: size of keys and values; E if None.
        batch_first: whether inputs and outputs are [B, T, E] instead of [T, B, E].
        device, dtype: of the parameters.
        mechanism: a name in MECHANISMS.
        num_kv_heads: heads of keys and values; H if None.
        gate: one of GATES, for a gate on the output; None for no gate.
        qk_norm: one of QK_NORMS, for queries and keys of length 1; None for no norm.
        **options: of the mechanism, such as gamma=2.0 for `relu`.

    Raises:
        KeyError: there is no such mechanism.
        TypeError: the mechanism has no such option.
        ValueError: sizes do not divide each other, or an option does not allow its value.
    """

    in_proj_bias = None
    _qkv_same_embed_dim = False
    """nn.TransformerEncoderLayer asks for these: they say that it must not replace this module with its fast path."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        mechanism: str = "softmax",
        num_kv_heads: int | None = None,
        gate: str | None = None,
        qk_norm: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if min(num_heads, num_kv_heads) < 1 or embed_dim % num_heads or num_heads % num_kv_heads:
            raise ValueError(
                f"embed_dim must be a multiple of num_heads, and that of num_kv_heads; got {embed_dim}, {num_heads} "
                f"and {num_kv_heads}"
            )
        self.head_dim = embed_dim // num_heads
        self.batch_first = batch_first
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        self.k_proj = nn.Linear(kdim or embed_dim, num_kv_heads * self.head_dim, bias, device, dtype)
        self.v_proj = nn.Linear(vdim or embed_dim, num_kv_heads * self.head_dim, bias, device, dtype)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        self.mechanism = MECHANISMS[mechanism](num_heads, self.head_dim, dropout, **options).to(device, dtype)
        self.qk_norm = QKNorm.build(qk_norm, self.mechanism).to(device, dtype) if qk_norm else None
        self.gate = OutputGate(gate, embed_dim, num_heads).to(device, dtype) if gate else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the projections as PyTorch's module does, those of queries and keys as the mechanism asks."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        if self.qk_norm is None:
            self.mechanism.init_projections(self.q_proj, self.k_proj)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with query [T, B, E] to key and value [S, B, E]; [B, T, E] and [B, S, E] with `batch_first`.

        Args:
            query, key, value: the inputs of the projections.
            key_padding_mask: [B, S], True or −∞ for padding.
            need_weights: return weights, too; fused kernels do not compute them.
            attn_mask: [T, S], [B, T, S] or [B·H, T, S]: bool, True = may not attend; or numbers that are added to
                scores, −∞ for what is hidden. All heads see the same keys.
            average_attn_weights: return the mean of the heads' weights.
            is_causal: `attn_mask` is the causal mask; it may be None, and is not read.

        Returns:
            The output, of the shape of `query`, and the weights: [B, T, S], or [B, H, T, S] for each head; None unless
            needed, or if the mechanism has no weights.
        """
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._heads(self.q_proj(query)), self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
        visible = bias = None
        if attn_mask is not None and not is_causal:
            (B, H, T, _), S = q.shape, k.shape[2]
            visible, bias = split_mask(attn_mask, B, H, T, S)
        mask = AttentionMask(key_mask_of(key_padding_mask), is_causal, visible, bias=bias)
        if self.qk_norm is not None:
            q, k = self.qk_norm(q, k, mask)
        result = self.mechanism(q, k, v, mask, Need.WEIGHTS if need_weights else Need.NOTHING)
        # [B, H, T, D] -> [T, B, E]
        heads = self.mechanism.postprocess_heads(result.output.permute(2, 0, 1, 3).flatten(2))
        if self.gate is not None:
            heads = self.gate(heads, query.transpose(0, 1))
        output = self.out_proj(cast_saturating(heads, q.dtype))
        weights = result.weights.mean(1) if average_attn_weights and result.weights is not None else result.weights
        return output.transpose(0, 1) if self.batch_first else output, weights

    def _heads(self, x: Tensor) -> Tensor:
        """[B, T, E] -> [B, H, T, D]; heads of keys and values are repeated for the queries that share them."""
        return repeat_heads(x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2), self.mechanism.num_heads)


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat heads of keys or values for the queries that share them: [B, H or fewer, S, D] -> [B, H, S, D]."""
    group = num_heads // x.shape[1]
    return x if group == 1 else x.repeat_interleave(group, 1)


def key_mask_of(key_padding_mask: Tensor | None) -> Tensor | None:
    """Return the `key_mask` of an `AttentionMask` for PyTorch's [B, S], in which True or −∞ is padding.

    Raises:
        ValueError: it adds other numbers to scores.
    """
    if key_padding_mask is None or not key_padding_mask.is_floating_point():
        return None if key_padding_mask is None else ~key_padding_mask
    padding = key_padding_mask.isneginf()
    if key_padding_mask.masked_fill(padding, 0.0).any():
        raise ValueError("expected a key_padding_mask of 0 and -inf, found other numbers; add them in attn_mask")
    return ~padding


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    enable_gqa: bool = False,
    *,
    mechanism: str = "softmax",
    **options: Any,
) -> Tensor:
    """Attend with query [B, H, T, D] to key [B, H, S, D] and value [B, H, S, D]; return [B, H, T, D] like `query`.

    Args:
        query, key, value: the heads.
        attn_mask: [T, S], [B, T, S] or [B or 1, H or 1, T or 1, S]: bool, True = may attend; or numbers that are added
            to scores.
        dropout_p: probability of dropping a weight.
        is_causal: whether a query sees only keys up to its own position.
        enable_gqa: whether `key` and `value` may have fewer heads than `query`.
        mechanism: a name in MECHANISMS, of a mechanism without parameters and norm.
        **options: of the mechanism.

    Raises:
        KeyError: there is no such mechanism.
        TypeError: the mechanism has no such option, or the mask is neither bool nor floating-point.
        ValueError: the mechanism has parameters or a norm, which need a module, or a shape does not fit.
    """
    B, H, T, D = query.shape
    module = MECHANISMS[mechanism](H, D, dropout_p, **options)
    if any(True for _ in module.parameters()) or module.overrides_postprocess_heads:
        raise ValueError(f"'{mechanism}' has parameters or a norm; build MECHANISMS['{mechanism}']({H}, {D}) once")
    if enable_gqa:
        key, value = repeat_heads(key, H), repeat_heads(value, H)
    visible = bias = None
    if attn_mask is not None:
        hides = attn_mask if attn_mask.is_floating_point() else ~attn_mask
        visible, bias = split_mask(hides, B, H, T, key.shape[2])
    mask = AttentionMask(is_causal=is_causal, attn_mask=visible, bias=bias)
    return cast_saturating(module(query, key, value, mask).output, query.dtype)
