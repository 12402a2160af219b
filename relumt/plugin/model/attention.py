"""fairseq's multi-head attention with a `Mechanism` inside. Shapes: B H T S D, E = H·D.

Parameters, their names and their initialization are inherited, so checkpoints of a stock Transformer load.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Mechanism, Need, OutputGate, QKNorm, cast_saturating
from relumt.attention.mask import split_mask
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.tensor_cache import cached_on
from relumt.errors import UserError
from relumt.plugin.cpu_products import products_of_strided_tensors
from relumt.plugin.model.cache import (
    SPARE,
    Cache,
    IncrementalState,
    append_keys_values,
    in_cached_dtype,
    reorder_hypotheses,
    reorder_sources,
)
from relumt.plugin.model.plain_linear import is_plain_linear


class MechanismAttention(MultiheadAttention):
    """Multi-head attention that computes with `mechanism`.

    Args:
        embed_dim: E.
        num_heads: H.
        mechanism: computes on the heads and, in `postprocess_heads`, on their concatenation.
        site: "encoder", "decoder" (self-attention; any `attn_mask` means causal, its values are not read) or "cross".
        gate: one of `relumt.attention.GATES`, or None for no gate on the output.
        qk_norm: one of `relumt.attention.QK_NORMS`, or None for queries and keys as they are.
        softmax_epochs: for how many epochs softmax takes the place of `mechanism` in training, not in validation.
        **fairseq_kwargs: of `MultiheadAttention`, but `add_bias_kv` and `add_zero_attn`: no mechanism sees their keys.

    Attributes:
        hooks: what `hooks.py` calls after each forward pass, and what it needs the mechanism to return.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        mechanism: Mechanism,
        site: str,
        gate: str | None = None,
        qk_norm: str | None = None,
        softmax_epochs: int = 0,
        **fairseq_kwargs: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **fairseq_kwargs)
        self.mechanism = mechanism
        self.softmax_epochs = softmax_epochs
        self.softmax = SoftmaxAttention(num_heads, self.head_dim, mechanism.dropout) if softmax_epochs else None
        self.epoch = softmax_epochs + 1  # a trained model computes with the mechanism
        self.site = site
        self.qk_norm = None if qk_norm is None else QKNorm.build(qk_norm, mechanism)
        if self.qk_norm is None and not softmax_epochs:  # with QK norm, scores do not depend on the initialization
            mechanism.init_projections(self.q_proj, self.k_proj)
        self.gate = None if gate is None else OutputGate(gate, embed_dim, num_heads)
        self.hooks: list[tuple[Need, Callable[[MechanismAttention, AttentionOutput, AttentionMask], None]]] = []
        self.weights_for_alignment = False

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of training, counted from 1."""
        self.epoch = epoch

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with query [T, B, E] to key and value [S, B, E].

        Returns:
            The output [T, B, E], and the weights: [H, B, T, S] with `need_head_weights`, else their mean [B, T, S]. The
            weights are None unless alignments are being generated: fairseq sets `need_weights` at every step of
            training and decoding but almost never uses the weights.
        """
        products: AbstractContextManager[object] = nullcontext()
        if incremental_state is None:
            q, k, v = self._project(query, key, value)
            mask = self._attention_mask(key_padding_mask, attn_mask)
        else:
            cache = self._get_input_buffer(incremental_state)
            attend_to = self._cached_source if self.site == "cross" else self._extended_prefix
            q, k, v, mask = attend_to(cache, query, key, value, key_padding_mask, attn_mask)
            self._set_input_buffer(incremental_state, cache)
            if query.is_cpu and self.site == "decoder":  # the prefix is a view of a buffer that grows
                products = products_of_strided_tensors()

        return_weights = need_weights and self.weights_for_alignment and not self.training
        need = Need.WEIGHTS if return_weights else Need.NOTHING
        for hook_need, _ in self.hooks:
            need |= hook_need
        if self.qk_norm is not None:
            q = self.qk_norm.normalize_queries(q, k.shape[2], mask)
        is_early = self.training and self.epoch <= self.softmax_epochs  # validation measures what will translate
        chosen = self.softmax if self.softmax and is_early else self.mechanism
        with products:
            result = chosen(q.to(k.dtype), k, v, mask, need)
        for _, hook in self.hooks:
            hook(self, result, mask)

        T, B, _ = query.shape
        # [B/beam, H, beam, T, D] -> [T, B/beam, beam, H, D] -> [T, B, E]
        heads = self._split_beam(result.output, T).permute(3, 0, 2, 1, 4).reshape(T, B, -1)
        heads = self.mechanism.postprocess_heads(heads)
        if self.gate is not None:
            heads = self.gate(heads, query)
        output = self.out_proj(cast_saturating(heads, q.dtype))
        if not return_weights:
            return output, None
        if result.weights is None:
            raise UserError(f"{type(chosen).__name__} has no attention weights to align with; drop --print-alignment")
        # [B/beam, H, beam, T, S] -> [H, B/beam, beam, T, S] -> [H, B, T, S]
        weights = self._split_beam(result.weights, T).transpose(0, 1).flatten(1, 2)
        return output, weights if need_head_weights else weights.mean(0)

    def make_generation_fast_(
        self,
        need_attn: bool | str = False,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **unused: object,
    ) -> None:
        """Prepare for generation; fairseq passes --print-alignment, --retain-dropout and --retain-dropout-modules."""
        self.weights_for_alignment = bool(need_attn)
        is_chosen = retain_dropout_modules is None or "MultiheadAttention" in retain_dropout_modules
        self.mechanism.retain_dropout = retain_dropout and is_chosen

    def reorder_incremental_state(
        self, incremental_state: IncrementalState | None, new_order: Tensor
    ) -> IncrementalState | None:
        """Let hypothesis i continue hypothesis new_order[i]."""
        cache = self._get_input_buffer(incremental_state)
        if self.site == "cross":
            reorder_sources(cache, new_order)
        elif incremental_state is not None:
            shared = incremental_state.setdefault(SPARE, {})
            shared["buffer"] = reorder_hypotheses(cache, new_order, shared.get("buffer"))
        return incremental_state

    def expand_incremental_state(self, incremental_state: IncrementalState, beam: int) -> None:
        """Let `beam` consecutive hypotheses continue each hypothesis."""
        cache = self._get_input_buffer(incremental_state)
        if self.site == "cross":
            cache["beam"] = cache.get("beam", 1) * beam
        else:
            rows = torch.arange(len(cache["prev_key"]), device=cache["prev_key"].device)
            reorder_hypotheses(cache, rows.repeat_interleave(beam))

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> Cache:
        """Return the cache; without an incremental state at once, because its key differs between layers."""
        return {} if incremental_state is None else super()._get_input_buffer(incremental_state)

    def _extended_prefix(
        self,
        cache: Cache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMask]:
        """Append the new tokens to the cached prefix; return q of the new tokens, k, v and mask of all of them."""
        qkv_projection = self._qkv_projection(cache) if query is key and key is value else None
        if qkv_projection:
            x = F.linear(query, *qkv_projection)
            # [T, B, 3E] -> [T, B, 3, H, D] -> [3, B, H, T, D]
            x = x.view(*query.shape[:2], 3, self.num_heads, self.head_dim).permute(2, 1, 3, 0, 4)
            q, kv = x[0], x[1:]
            if self.qk_norm is not None:
                kv = torch.stack((self.qk_norm.normalize_keys(x[1]), x[2]))
        else:
            q, new_k, new_v = self._project(query, key, value)
            kv = torch.stack((new_k, new_v))
        k, v = append_keys_values(cache, in_cached_dtype(kv))
        if key_padding_mask is not None or cache.get("prev_key_padding_mask") is not None:
            cache["prev_key_padding_mask"] = key_padding_mask = self._append_prev_key_padding_mask(
                key_padding_mask=key_padding_mask,
                prev_key_padding_mask=cache.get("prev_key_padding_mask"),
                batch_size=k.size(0),
                src_len=k.size(2),
                static_kv=False,
            )
        return q, k, v, self._attention_mask(key_padding_mask, attn_mask)

    def _cached_source(
        self,
        cache: Cache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMask]:
        """Return q, and the source's k, v and mask, which are computed in the first step of a translation."""
        if "prev_key" not in cache:
            beam = self._shared_beam_size(query, key, key_padding_mask)
            if beam > 1:
                cache["beam"] = beam
                key, value = key[:, ::beam], value[:, ::beam]
                key_padding_mask = None if key_padding_mask is None else key_padding_mask[::beam]
            is_padded = key_padding_mask is not None and bool(key_padding_mask.any())
            cache["prev_key"] = self._project_keys(key)
            cache["prev_value"] = self._split_heads(self.v_proj(value))
            cache["prev_key_padding_mask"] = key_padding_mask if is_padded else None
        if "mask" not in cache:  # zeroes padding once, not at every step
            mask = self._attention_mask(cache.get("prev_key_padding_mask"), attn_mask)
            # In the type and the memory layout that products need; otherwise each step would cast and copy them.
            cache["prev_key"], cache["prev_value"] = (
                in_cached_dtype(mask.zero_padding(cache[name])).contiguous() for name in ("prev_key", "prev_value")
            )
            cache["mask"] = replace(mask, padding_is_zero=True)
        q = self._split_heads(self.q_proj(query), cache.get("beam", 1))
        return q, cache["prev_key"], cache["prev_value"], cache["mask"]

    def _shared_beam_size(self, query: Tensor, key: Tensor, key_padding_mask: Tensor | None) -> int:
        """Return how many consecutive hypotheses share one source: the announced beam size, or 1 if they do not.

        fairseq's search never takes back the size that it announces, and another may use the model: keys are compared.
        """
        beam, B = self.beam_size, query.shape[1]
        if beam == 1 or key.shape[1] != B or B % beam or self.hooks:  # hooks expect one batch entry per hypothesis
            return 1
        shares_keys = torch.equal(key, key[:, ::beam].repeat_interleave(beam, 1))
        if key_padding_mask is not None:
            shares_keys &= torch.equal(key_padding_mask, key_padding_mask[::beam].repeat_interleave(beam, 0))
        return beam if shares_keys else 1

    def _qkv_projection(self, cache: Cache) -> tuple[Tensor, Tensor | None] | None:
        """Return weight [3E, E] and bias [3E] of the three projections in one; None if gradients or hooks need each.

        Cached for this translation only: fairseq's optimizers do not bump the version of weights that they update.
        """
        projections = (self.q_proj, self.k_proj, self.v_proj)
        if torch.is_grad_enabled() or not all(map(is_plain_linear, projections)):
            return None
        if "qkv_projection" not in cache:
            bias = None if self.q_proj.bias is None else torch.cat([projection.bias for projection in projections])
            cache["qkv_projection"] = torch.cat([projection.weight for projection in projections]), bias
        weight, bias = cache["qkv_projection"]
        return weight, bias

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project query [T, B, E], key and value [S, B, E] to q [B, H, T, D], k and v [B, H, S, D]."""
        return self._split_heads(self.q_proj(query)), self._project_keys(key), self._split_heads(self.v_proj(value))

    def _project_keys(self, key: Tensor) -> Tensor:
        """[S, B, E] -> [B, H, S, D], normalized with QK norm."""
        k = self._split_heads(self.k_proj(key))
        return k if self.qk_norm is None else self.qk_norm.normalize_keys(k)

    def _split_heads(self, x: Tensor, beam: int = 1) -> Tensor:
        """[T, B, E] -> [B/beam, H, beam·T, D]: the hypotheses of a beam become further queries of one batch entry."""
        T, B, _ = x.shape
        if beam == 1:
            # [T, B, E] -> [T, B, H, D] -> [B, H, T, D]
            return x.view(T, B, self.num_heads, self.head_dim).permute(1, 2, 0, 3)
        # [T, B, E] -> [T, B/beam, beam, H, D] -> [B/beam, H, beam, T, D] -> [B/beam, H, beam·T, D]
        return x.view(T, B // beam, beam, self.num_heads, self.head_dim).permute(1, 3, 2, 0, 4).flatten(2, 3)

    def _split_beam(self, x: Tensor, T: int) -> Tensor:
        """Separate the hypotheses of a beam: [B/beam, H, beam·T, *] -> [B/beam, H, beam, T, *]."""
        return x.view(*x.shape[:2], x.shape[2] // T, T, x.shape[3])

    def _attention_mask(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> AttentionMask:
        """Turn fairseq's masks, in which True means hidden, into an `AttentionMask`, in which True means visible."""
        key_mask = None
        if key_padding_mask is not None:  # all layers get the same tensor
            key_mask = cached_on(key_padding_mask, "key_mask", lambda is_padding: ~is_padding.bool())
        if self.site == "decoder":  # its attn_mask is always the causal one, so the values need not be read
            return AttentionMask(key_mask, is_causal=attn_mask is not None)
        visible = bias = None
        if attn_mask is not None:
            if attn_mask.is_floating_point():  # fairseq's encoder layer writes −1e8 or −1e4 for −∞
                attn_mask = attn_mask.masked_fill(attn_mask <= -1e4, -torch.inf)
            visible, bias = split_mask(attn_mask, 1, self.num_heads, *attn_mask.shape)
        return AttentionMask(key_mask, attn_mask=visible, bias=bias)
