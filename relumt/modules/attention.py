"""fairseq's multi-head attention around a `Mechanism`.

Shapes: B batch, H heads, T queries, S keys, D head size, E = H·D.

Parameters, their names and initialisation are inherited, so that a checkpoint of a stock Transformer loads.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Mechanism, Need, cast_saturating
from relumt.errors import UserError, exit_on_user_error
from relumt.modules import cache

Tap = Callable[["MechanismAttention", AttentionOutput, AttentionMask], None]


class MechanismAttention(MultiheadAttention):
    """Multi-head attention that computes with `mechanism`.

    Args:
        embed_dim: E.
        num_heads: H.
        mechanism: computes on the heads and, in `merged`, on their concatenation.
        site: "encoder", "decoder" (self-attention) or "cross".
        **stock: what `MultiheadAttention` takes, by keyword (its order differs between versions).
    """

    def __init__(self, embed_dim: int, num_heads: int, *, mechanism: Mechanism, site: str, **stock) -> None:
        super().__init__(embed_dim, num_heads, **stock)
        self.mechanism = mechanism
        self.site = site
        mechanism.init_projections(self.q_proj, self.k_proj)
        self.hooks: list[tuple[Need, Tap]] = []
        self.weights_for_alignment = False

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with query [T, B, E] to key and value [S, B, E].

        Returns the output [T, B, E], and the weights, [B, T, S] or [H, B, T, S] with `need_head_weights`, only when
        generating with alignments: fairseq sets `need_weights` at every step and nearly never reads them.
        """
        if incremental_state is None:
            q, k, v = self._projected(query, key, value)
            mask = self._attention_mask(key_padding_mask, attn_mask)
        else:
            held = self._get_input_buffer(incremental_state)
            step = self._source_step if self.site == "cross" else self._prefix_step
            q, k, v, mask = step(held, query, key, value, key_padding_mask, attn_mask)
            self._set_input_buffer(incremental_state, held)
        need = Need.WEIGHTS if need_weights and self.weights_for_alignment else Need.NOTHING
        for tap_wants, _ in self.hooks:
            need |= tap_wants
        result = self.mechanism(q, k, v, mask, need)
        for _, tap in self.hooks:
            tap(self, result, mask)

        if result.weights is None and need_weights and self.weights_for_alignment:
            with exit_on_user_error():
                raise UserError(f"{type(self.mechanism).__name__} has no weights to align by; drop --print-alignment")
        T, hypotheses = query.shape[:2]
        mixed = self._by_hypothesis(result.output, T).permute(3, 0, 2, 1, 4).reshape(T, hypotheses, -1)
        output = self.out_proj(cast_saturating(self.mechanism.postprocess_heads(mixed), q.dtype))
        if result.weights is None or not need_weights:
            return output, None
        weights = self._by_hypothesis(result.weights, T).transpose(0, 1).flatten(1, 2)
        return output, weights if need_head_weights else weights.mean(0)

    def make_generation_fast_(
        self,
        need_attn: bool | str = False,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **unused: object,
    ) -> None:
        """fairseq's announcement before generation: --print-alignment, --retain-dropout and for which modules."""
        self.weights_for_alignment = bool(need_attn)
        chosen = retain_dropout_modules is None or "MultiheadAttention" in retain_dropout_modules
        self.mechanism.retain_dropout = retain_dropout and chosen

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Tensor | None]] | None, new_order: Tensor
    ) -> dict[str, dict[str, Tensor | None]] | None:
        """Let hypothesis i go on from what hypothesis new_order[i] was."""
        held = self._get_input_buffer(incremental_state)
        if self.site == "cross":
            cache.reorder_sources(held, new_order)
        else:
            cache.reorder(held, new_order)
        return incremental_state

    def _beam(self, query: Tensor, key: Tensor | None, key_padding_mask: Tensor | None) -> int:
        """How many hypotheses in turn have one source: as many as fairseq's search announces, if they do; else 1.

        The number stays announced when another search, or none, uses the model: so the keys are looked at.
        """
        beam = self.beam_size
        alike = self.site == "cross" and key is not None and beam > 1 and query.shape[1] == key.shape[1]
        if not alike or query.shape[1] % beam or self.hooks:
            return 1
        same = torch.equal(key, key[:, ::beam].repeat_interleave(beam, 1)) and (
            key_padding_mask is None
            or torch.equal(key_padding_mask, key_padding_mask[::beam].repeat_interleave(beam, 0))
        )
        return beam if same else 1

    def _prefix_step(
        self,
        held: cache.Cache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMask]:
        """What to attend with and to: what was decoded before, which `held` has, and its continuation."""
        joined = self._joined_projections(held) if query is key and key is value else None
        if joined:
            x = F.linear(query, *joined)
            x = x.view(*query.shape[:2], 3, self.num_heads, self.head_dim).permute(2, 1, 3, 0, 4)
            q, kv = x[0], x[1:]
        else:
            q, *kv = self._projected(query, key, value)
            kv = torch.stack(kv)
        k, v = cache.append(held, kv)
        if key_padding_mask is not None or held.get("prev_key_padding_mask") is not None:
            held["prev_key_padding_mask"] = key_padding_mask = self._append_prev_key_padding_mask(
                key_padding_mask=key_padding_mask,
                prev_key_padding_mask=held.get("prev_key_padding_mask"),
                batch_size=k.size(0),
                src_len=k.size(2),
                static_kv=False,
            )
        return q, k, v, self._attention_mask(key_padding_mask, attn_mask)

    def _source_step(
        self,
        held: cache.Cache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMask]:
        """What to attend with and to: the source, whose keys, values and padding are the same at every step."""
        if "prev_key" not in held:
            beam = self._beam(query, key, key_padding_mask)
            if beam > 1:
                held["beam"] = beam
                key, value = key[:, ::beam], value[:, ::beam]
                key_padding_mask = None if key_padding_mask is None else key_padding_mask[::beam]
            padded = key_padding_mask is not None and bool(key_padding_mask.any())
            held["prev_key"], held["prev_value"] = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
            held["prev_key_padding_mask"] = key_padding_mask if padded else None
        if "visible" not in held:
            held["visible"] = self._attention_mask(held.get("prev_key_padding_mask"), attn_mask)
        q = self._heads(self.q_proj(query), held.get("beam", 1))
        return q, held["prev_key"], held["prev_value"], held["visible"]

    def _joined_projections(self, held: cache.Cache) -> tuple[Tensor, Tensor | None] | None:
        """Weight [3E, E] and bias [3E] of the three projections as one, None where gradients are wanted.

        Joined once a translation, of which `held` is: weights may change between two, and their version does not tell,
        since fairseq's optimisers write past it.
        """
        parts = (self.q_proj, self.k_proj, self.v_proj)
        if torch.is_grad_enabled() or any(type(part) is not nn.Linear for part in parts):
            return None
        if "joined" not in held:
            bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
            held["joined"] = torch.cat([part.weight for part in parts]), bias
        return held["joined"]

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query [T, B, E], key and value [S, B, E] → q [B, H, T, D], k and v [B, H, S, D]."""
        return self._heads(self.q_proj(query)), self._heads(self.k_proj(key)), self._heads(self.v_proj(value))

    def _heads(self, x: Tensor, beam: int = 1) -> Tensor:
        """[T, B, E] → [B, H, T, D]; the hypotheses of a beam become further queries, [B/beam, H, beam·T, D]."""
        T, B, _ = x.shape
        if beam == 1:
            return x.view(T, B, self.num_heads, self.head_dim).permute(1, 2, 0, 3)
        return x.view(T, B // beam, beam, self.num_heads, self.head_dim).permute(1, 3, 2, 0, 4).flatten(2, 3)

    def _by_hypothesis(self, x: Tensor, T: int) -> Tensor:
        """[B/beam, H, beam·T, any] → [B/beam, H, beam, T, any]."""
        return x.view(*x.shape[:2], x.shape[2] // T, T, x.shape[3])

    def _attention_mask(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> AttentionMask:
        """fairseq marks what is hidden; the decoder's mask is always the causal one, so its values are not read."""
        keys = None if key_padding_mask is None else ~key_padding_mask.bool()
        if self.site == "decoder":
            return AttentionMask(keys, is_causal=attn_mask is not None)
        return AttentionMask(keys, attn_mask=None if attn_mask is None else ~attn_mask.bool())
