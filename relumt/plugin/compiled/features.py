"""The forward pass of training, compiled. Shapes: B batch, S source and T target positions, E model size.

fairseq's encoder and decoder ask the batch whether it has padding, which a compiler cannot follow and for which a GPU
waits. Here padding is always masked, and everything else is fairseq's: embeddings, layers, norms and their order. What
fairseq's own forward pass has beyond that (intermediate states, incremental decoding, alignments) training never uses.

All of it can be traced as one graph. Compiled are its parts: one program serves all layers of a kind, so the compiler
needs a tenth of the time, and CUDA graphs (`cuda_graphs.py`) join the parts again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook

Function = Callable[..., Any]
Part = Callable[[Function], Function]


@cache
def compiled(function: Function) -> Function:
    """Return `function` compiled without a graph break, for all sizes that the warm-up of `losses.py` leaves open."""
    return torch.compile(function, fullgraph=True)


RowSums = tuple[Tensor, Tensor, Tensor]
"""Σ_j s_ij and Σ_j s_ij log s_ij [B, H, T], and the number of visible keys [B or 1, 1, T or 1]."""


class Features(NamedTuple):
    """What the loss needs of a forward pass.

    Attributes:
        output: the decoder's features, [B, T, E].
        row_sums: site → the sums of each of its attentions; empty unless asked for.
    """

    output: Tensor
    row_sums: dict[str, list[RowSums]]


def compute_features(model: Any, src_tokens: Tensor, prev_output_tokens: Tensor, need: Need, part: Part) -> Features:
    """Return what `model(…, features_only=True)` does, and the sums of attention rows if `need` has them.

    Args:
        model: a `MechanismTransformer`.
        src_tokens: [B, S].
        prev_output_tokens: [B, T].
        need: what the mechanisms return beyond their output.
        part: what each part of the model is wrapped in, such as `compiled`.
    """
    encoder, decoder = model.encoder, model.decoder
    source_padding, target_padding = src_tokens.eq(encoder.padding_idx), prev_output_tokens.eq(decoder.padding_idx)
    row_sums: dict[str, list[RowSums]] = defaultdict(list)

    def through(layers: Iterable[nn.Module], run: Function, x: Tensor, *inputs: Tensor) -> Tensor:
        for layer in layers:
            x, found = part(run)(layer, need, x, *inputs)
            for site, sums in found.items():
                row_sums[site].append(sums)
        return x

    x = through(encoder.layers, encoder_layer, part(embed)(encoder, src_tokens, source_padding), source_padding)
    encoded = part(finish_encoder)(encoder, x)
    x = part(embed)(decoder, prev_output_tokens, None)
    x = through(decoder.layers, decoder_layer, x, encoded, source_padding, target_padding)
    return Features(part(finish_decoder)(decoder, x), row_sums)


def embed(side: Any, tokens: Tensor, padding: Tensor | None) -> Tensor:
    """Return what the layers of an encoder or decoder read [T, B, E]: tokens [B, T] with positions, 0 at `padding`."""
    x = side.embed_scale * side.embed_tokens(tokens)
    if getattr(side, "project_in_dim", None) is not None:
        x = side.project_in_dim(x)
    if side.embed_positions is not None:
        x = x + embed_positions(side.embed_positions, tokens)
    if side.layernorm_embedding is not None:
        x = side.layernorm_embedding(x)
    x = side.dropout_module(x)
    x = x if padding is None else x.masked_fill(padding[..., None], 0.0)
    return x.transpose(0, 1).contiguous()  # [B, T, E] -> [T, B, E]


def embed_positions(module: nn.Module, tokens: Tensor) -> Tensor:
    """Return the embeddings of positions [B, T, E]; `grow_positions` has made the table of sinusoids long enough."""
    if not isinstance(module, SinusoidalPositionalEmbedding):
        return module(tokens)
    return F.embedding(make_positions(tokens, module.padding_idx), module.weights)


def grow_positions(model: Any) -> None:
    """Let the tables of sinusoids serve all lengths, also padded; fairseq's grow, and CUDA graphs read the old ones."""
    for side in (model.encoder, model.decoder):
        module, length = side.embed_positions, 2 * side.max_positions()
        if isinstance(module, SinusoidalPositionalEmbedding) and len(module.weights) <= module.padding_idx + length:
            table = module.get_embedding(module.padding_idx + 1 + length, module.embedding_dim, module.padding_idx)
            module.weights = table.to(module.weights)


def encoder_layer(layer: nn.Module, need: Need, x: Tensor, padding: Tensor) -> tuple[Tensor, dict[str, RowSums]]:
    """Return a layer's output [S, B, E] for x [S, B, E] and padding [B, S], and the row sums of its attention."""
    return observed(layer, need, lambda: layer(x, encoder_padding_mask=padding))


def finish_encoder(encoder: Any, x: Tensor) -> Tensor:
    """Return the encoder's output [S, B, E] for that of its last layer."""
    return x if encoder.layer_norm is None else encoder.layer_norm(x)


def decoder_layer(
    layer: nn.Module, need: Need, x: Tensor, encoded: Tensor, source_padding: Tensor, target_padding: Tensor
) -> tuple[Tensor, dict[str, RowSums]]:
    """Return a layer's output [T, B, E] for x [T, B, E], the encoder's output [S, B, E], and padding [B, S], [B, T]."""
    causal = x.new_empty(0)  # the attention of the decoder reads only that there is such a mask
    masks = {"self_attn_mask": causal, "self_attn_padding_mask": target_padding}
    return observed(layer, need, lambda: layer(x, encoded, source_padding, **masks)[0])


def observed(layer: nn.Module, need: Need, run: Callable[[], Tensor]) -> tuple[Tensor, dict[str, RowSums]]:
    """Return what `run` does, and the row sums of the attentions of `layer` by site; none if `need` has none."""
    row_sums: dict[str, RowSums] = {}

    def collect(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if (rows := result.row_stats) is not None:
            row_sums[attention.site] = rows.weight_sum, rows.weight_log_weight_sum, rows.num_keys

    if not need:
        return run(), row_sums
    with attention_hook(layer, collect, need):
        return run(), row_sums


def finish_decoder(decoder: Any, x: Tensor) -> Tensor:
    """Return the decoder's features [B, T, E] for the output [T, B, E] of its last layer."""
    x = (x if decoder.layer_norm is None else decoder.layer_norm(x)).transpose(0, 1)  # [T, B, E] -> [B, T, E]
    return x if decoder.project_out_dim is None else decoder.project_out_dim(x)
