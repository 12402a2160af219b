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
from relumt.modules import cache

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
        held = self._get_input_buffer(incremental_state)
        if static_kv and "prev_key" in held:
            k, v, key_padding_mask = held["prev_key"], held["prev_value"], held["prev_key_padding_mask"]
        else:
            beam = self._beam(query, key, key_padding_mask) if incremental_state is not None else 1
            if beam > 1:
                held["beam"] = torch.tensor(beam)
                key, value = key[:, ::beam], value[:, ::beam]
                key_padding_mask = None if key_padding_mask is None else key_padding_mask[::beam]
            k, v = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
            if incremental_state is not None:
                k, v, key_padding_mask = self._appended(held, k, v, key_padding_mask, static_kv)
                self._set_input_buffer(incremental_state, held)

        visible = self._visible(key_padding_mask, attn_mask)
        want = Want.WEIGHTS if need_weights and self.weights_for_alignment else Want.NOTHING
        for tap_wants, _ in self.taps:
            want |= tap_wants
        attended = self._attend(q, k, v, visible, want)
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
        if not alike or query.shape[1] % beam or self.taps:
            return 1
        same = torch.equal(key, key[:, ::beam].repeat_interleave(beam, 1)) and (
            key_padding_mask is None
            or torch.equal(key_padding_mask, key_padding_mask[::beam].repeat_interleave(beam, 0))
        )
        return beam if same else 1

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, want: Want) -> Attended:
        """Attend; hypotheses that share their keys do as further queries of one sentence."""
        beam = len(q) // len(k)
        if beam == 1:
            return self.mechanism(q, k, v, visible, want)
        together = q.unflatten(0, (len(k), beam)).transpose(1, 2).flatten(2, 3)
        attended = self.mechanism(together, k, v, visible, want)
        mixed, weights = (
            None if x is None else x.unflatten(2, (beam, -1)).transpose(1, 2).flatten(0, 1)
            for x in (attended.mixed, attended.weights)
        )
        return attended._replace(mixed=mixed, weights=weights)

    def _heads(self, x: Tensor) -> Tensor:
        """[T, B, E] → [B, H, T, D]."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def _appended(
        self,
        held: cache.Cache,
        k: Tensor,
        v: Tensor,
        key_padding_mask: Tensor | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Add k and v [B, H, S, D] to what `held` has, in place, and return all of it."""
        if self.site == "cross":
            held |= {"prev_key": k, "prev_value": v}
        else:
            cache.append(held, k, v)
            k, v = held["prev_key"], held["prev_value"]
        key_padding_mask = self._append_prev_key_padding_mask(
            key_padding_mask=key_padding_mask,
            prev_key_padding_mask=held.get("prev_key_padding_mask"),
            batch_size=k.size(0),
            src_len=k.size(2),
            static_kv=static_kv,
        )
        held["prev_key_padding_mask"] = key_padding_mask
        return k, v, key_padding_mask

    def _visible(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Visible:
        """fairseq marks what is hidden; the decoder's mask is always the causal one, so its values are not read."""
        keys = None if key_padding_mask is None else ~key_padding_mask.bool()
        if self.site == "decoder":
            return Visible(keys, causal=attn_mask is not None)
        return Visible(keys, pairs=None if attn_mask is None else ~attn_mask.bool())
