"""fairseq's multi-head attention around a `Mechanism`.

Shapes: B batch, H heads, T queries, S keys, D head size, E = H·D.

Parameters, their names and initialisation, the cache and its re-ordering are inherited, so that a checkpoint of
a stock Transformer loads.
"""

from collections.abc import Callable

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from relumt.attention import Attended, Mechanism, Visible, Want, saturated
from relumt.errors import UserError, one_line_errors

Tap = Callable[["MechanismAttention", Attended, Visible], None]


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
        mechanism.initialise(self.q_proj, self.k_proj)
        self.taps: list[tuple[Want, Tap]] = []
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
        q = self._heads(self.q_proj(query))
        cache = self._get_input_buffer(incremental_state)
        if static_kv and "prev_key" in cache:
            k, v, key_padding_mask = cache["prev_key"], cache["prev_value"], cache["prev_key_padding_mask"]
        else:
            k, v = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
            if incremental_state is not None:
                k, v, key_padding_mask = self._appended(cache, k, v, key_padding_mask, static_kv)
                self._set_input_buffer(incremental_state, cache)

        visible = self._visible(key_padding_mask, attn_mask)
        want = Want.WEIGHTS if need_weights and self.weights_for_alignment else Want.NOTHING
        for tap_wants, _ in self.taps:
            want |= tap_wants
        attended = self.mechanism(q, k, v, visible, want)
        for _, tap in self.taps:
            tap(self, attended, visible)

        if attended.weights is None and need_weights and self.weights_for_alignment:
            with one_line_errors():
                raise UserError(f"{type(self.mechanism).__name__} has no weights to align by; drop --print-alignment")
        merged = self.mechanism.merged(attended.mixed.permute(2, 0, 1, 3).flatten(2))
        output = self.out_proj(saturated(merged, q.dtype))
        if attended.weights is None or not need_weights:
            return output, None
        weights = attended.weights.transpose(0, 1)
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

    def set_beam_size(self, beam_size: int) -> None:
        """Every hypothesis keeps its own cross keys, whatever `beam_size`."""

    def _heads(self, x: Tensor) -> Tensor:
        """[T, B, E] → [B, H, T, D]."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def _appended(
        self,
        cache: dict[str, Tensor | None],
        k: Tensor,
        v: Tensor,
        key_padding_mask: Tensor | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append k and v [B, H, S, D] to what `cache` holds, in place, and return all of it."""
        if "prev_key" in cache:
            k = torch.cat([cache["prev_key"], k], dim=2)
            v = torch.cat([cache["prev_value"], v], dim=2)
        key_padding_mask = self._append_prev_key_padding_mask(
            key_padding_mask=key_padding_mask,
            prev_key_padding_mask=cache.get("prev_key_padding_mask"),
            batch_size=k.size(0),
            src_len=k.size(2),
            static_kv=static_kv,
        )
        cache |= {"prev_key": k, "prev_value": v, "prev_key_padding_mask": key_padding_mask}
        return k, v, key_padding_mask

    def _visible(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Visible:
        """fairseq marks what is hidden; the decoder's mask is always the causal one, so its values are not read."""
        keys = None if key_padding_mask is None else ~key_padding_mask.bool()
        if self.site == "decoder":
            return Visible(keys, causal=attn_mask is not None)
        return Visible(keys, pairs=None if attn_mask is None else ~attn_mask.bool())
