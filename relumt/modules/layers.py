"""fairseq's Transformer layers with a mechanism at each of the three attention sites, and a feed-forward variant.

Of computation only the order of a beam is overridden; every forward pass is fairseq's.
"""

from functools import cached_property

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from relumt.modules.attention import MechanismAttention
from relumt.options import build_feedforward, build_mechanism

IncrementalState = dict[str, dict[str, Tensor | None]]


def build_attention(cfg: TransformerConfig, site: str, embed_dim: int, **stock) -> MechanismAttention:
    """The attention that `cfg` asks for at `site`; `stock` goes on to fairseq's MultiheadAttention."""
    num_heads = cfg.encoder.attention_heads if site == "encoder" else cfg.decoder.attention_heads
    mechanism = build_mechanism(cfg, site, num_heads, embed_dim // num_heads, cfg.attention_dropout)
    return MechanismAttention(
        embed_dim,
        num_heads,
        mechanism=mechanism,
        site=site,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        **stock,
    )


class FeedForwardBuilder:
    """Builds the feed-forward part of a layer of fairseq's that comes after it among the bases."""

    side: str
    """Of the model, "encoder" or "decoder": where `cfg` is asked."""

    def __init__(self, cfg: TransformerConfig, *args, **kwargs) -> None:
        self.feedforward = build_feedforward(cfg, self.side)  # before fairseq's __init__, which calls the builders
        super().__init__(cfg, *args, **kwargs)
        if self.feedforward.activation is not None:
            self.activation_fn = self.feedforward.activation()

    def build_fc1(self, input_dim: int, output_dim: int, *noise) -> nn.Module:
        """The layer that makes the scores of the slots."""
        return self.feedforward.adjusted(super().build_fc1(input_dim, self.feedforward.scores(output_dim), *noise))

    def build_fc2(self, input_dim: int, output_dim: int, *noise) -> nn.Module:
        """The layer that sums the values of the slots."""
        return self.feedforward.output(super().build_fc2(self.feedforward.slots(input_dim), output_dim, *noise))


class MechanismEncoderLayer(FeedForwardBuilder, TransformerEncoderLayerBase):
    """Encoder layer with the mechanism of the site "encoder" and the feed-forward of the encoder."""

    side = "encoder"

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> MechanismAttention:
        """Self-attention over the source."""
        return build_attention(cfg, "encoder", embed_dim, self_attention=True)


class MechanismDecoderLayer(FeedForwardBuilder, TransformerDecoderLayerBase):
    """Decoder layer with the mechanisms of the sites "decoder" and "cross" and the feed-forward of the decoder."""

    side = "decoder"

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> MechanismAttention:
        """Self-attention over the target prefix; no fairseq translation model sets the two flags."""
        return build_attention(cfg, "decoder", embed_dim, self_attention=not cfg.cross_self_attention)

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> MechanismAttention:
        """Attention from the target to the encoder's output."""
        source_dim = cfg.encoder.embed_dim
        return build_attention(
            cfg, "cross", embed_dim, kdim=source_dim, vdim=source_dim, encoder_decoder_attention=True
        )


class MechanismEncoder(TransformerEncoderBase):
    """fairseq's encoder, of `MechanismEncoderLayer`s."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        """One layer, wrapped as `cfg` asks."""
        return wrapped(MechanismEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class MechanismDecoder(TransformerDecoderBase):
    """fairseq's decoder, of `MechanismDecoderLayer`s."""

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        """One layer, wrapped as `cfg` asks."""
        return wrapped(MechanismDecoderLayer(cfg, no_encoder_attn), cfg)

    def reorder_incremental_state_scripting(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """As fairseq's, which at every step asks every module whether it is an attention; here they are known."""
        for attention in self.attentions:
            attention.reorder_incremental_state(incremental_state, new_order)

    @cached_property
    def attentions(self) -> list[MechanismAttention]:
        """The attentions of all layers."""
        return [module for module in self.modules() if isinstance(module, MechanismAttention)]


STOCK = {
    "MechanismAttention": "MultiheadAttention",
    "MechanismEncoder": "TransformerEncoder",
    "MechanismDecoder": "TransformerDecoder",
    "MechanismEncoderLayer": "TransformerEncoderLayerBase",
    "MechanismDecoderLayer": "TransformerDecoderLayerBase",
}
"""Our classes → what --retain-dropout-modules calls them in a stock Transformer."""


def name_dropouts_as_in_stock(model: nn.Module) -> None:
    """Let dropouts be of stock's modules by their names."""
    for module in model.modules():
        if isinstance(module, FairseqDropout):
            module.module_name = STOCK.get(module.module_name, module.module_name)


def wrapped(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """`layer` with activation checkpointing (of any size) and fully sharded data parallelism where asked for."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        return fsdp_wrap(layer, min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
