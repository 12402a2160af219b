"""fairseq's Transformer layers with a mechanism at each of the three attention sites, and a feed-forward variant.

Only builders and the reordering of a beam are overridden; every forward pass is fairseq's.
"""

from functools import cached_property
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from relumt.attention.dropout import dropout
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.cache import IncrementalState
from relumt.plugin.options import ATTENTION_CHOICE, FEEDFORWARD_CHOICE


def build_attention(cfg: TransformerConfig, site: str, embed_dim: int, **fairseq_kwargs: Any) -> MechanismAttention:
    """Build the attention module that `cfg` asks for at `site`; `fairseq_kwargs` go to fairseq's MultiheadAttention."""
    num_heads = cfg.encoder.attention_heads if site == "encoder" else cfg.decoder.attention_heads
    mechanism = ATTENTION_CHOICE.build(cfg, site, num_heads, embed_dim // num_heads, cfg.attention_dropout)
    softmax_epochs = getattr(cfg, "attention_softmax_epochs", 0)
    if softmax_epochs and list(mechanism.parameters()):
        name = ATTENTION_CHOICE.name_at(cfg, site)
        raise ValueError(f"--attention-softmax-epochs would not train the parameters of {name} attention")
    return MechanismAttention(
        embed_dim,
        num_heads,
        mechanism=mechanism,
        site=site,
        gate=getattr(cfg, "attention_gate", None),
        qk_norm=getattr(cfg, "attention_qk_norm", None),
        softmax_epochs=softmax_epochs,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        **fairseq_kwargs,
    )


class FeedForwardMixin(nn.Module):
    """A mixin that builds the feed-forward variant of one of fairseq's layers; it precedes the layer in the bases.

    Attributes:
        side: "encoder" or "decoder", the site whose variant `cfg` names.
    """

    side: str
    fc1: nn.Module
    fc2: nn.Module
    final_layer_norm: nn.Module
    normalize_before: bool

    def __init__(self, cfg: TransformerConfig, *args: Any, **kwargs: Any) -> None:
        # before fairseq's __init__, which calls the builders
        self.feedforward = FEEDFORWARD_CHOICE.build(cfg, self.side)
        super().__init__(cfg, *args, **kwargs)
        if self.feedforward.activation is not None:
            self.activation_fn = self.feedforward.activation()

    def build_fc1(self, input_dim: int, output_dim: int, *quant_noise: Any) -> nn.Module:
        """Build the layer that computes the scores of the memory slots."""
        fc1 = super().build_fc1(input_dim, self.feedforward.num_scores(output_dim), *quant_noise)  # type: ignore[misc]
        return self.feedforward.configure_fc1(fc1)

    def build_fc2(self, input_dim: int, output_dim: int, *quant_noise: Any) -> nn.Module:
        """Build the layer that sums the values of the memory slots."""
        fc2 = super().build_fc2(self.feedforward.num_slots(input_dim), output_dim, *quant_noise)  # type: ignore[misc]
        return self.feedforward.configure_fc2(fc2)


class MechanismEncoderLayer(FeedForwardMixin, TransformerEncoderLayerBase):
    """Encoder layer with the mechanism and the feed-forward variant of the encoder."""

    side = "encoder"

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> MechanismAttention:
        """Build the self-attention over the source."""
        return build_attention(cfg, "encoder", embed_dim, self_attention=True)


class MechanismDecoderLayer(FeedForwardMixin, TransformerDecoderLayerBase):
    """Decoder layer with the mechanisms of the sites "decoder" and "cross", and the decoder's feed-forward variant."""

    side = "decoder"

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> MechanismAttention:
        """Build the self-attention over the target prefix; no fairseq translation model sets the last two flags."""
        return build_attention(cfg, "decoder", embed_dim, self_attention=not cfg.cross_self_attention)

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> MechanismAttention:
        """Build the attention from the target to the encoder's output."""
        source_dim = cfg.encoder.embed_dim
        return build_attention(
            cfg, "cross", embed_dim, kdim=source_dim, vdim=source_dim, encoder_decoder_attention=True
        )


class MechanismEncoder(TransformerEncoderBase):
    """fairseq's encoder with `MechanismEncoderLayer`s."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        """Build one layer."""
        return wrap_layer(MechanismEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class MechanismDecoder(TransformerDecoderBase):
    """fairseq's decoder with `MechanismDecoderLayer`s."""

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        """Build one layer."""
        return wrap_layer(MechanismDecoderLayer(cfg, no_encoder_attn), cfg)

    def reorder_incremental_state_scripting(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Reorder the caches of all modules that have one, which fairseq's version searches for at every step."""
        for module in self.recurrent_modules:
            module.reorder_incremental_state(incremental_state, new_order)

    def expand_incremental_state(self, incremental_state: IncrementalState, beam: int) -> None:
        """Let `beam` consecutive hypotheses continue each hypothesis of the caches of all attention modules."""
        for attention in self.recurrent_modules[1:]:
            attention.expand_incremental_state(incremental_state, beam)

    @cached_property
    def recurrent_modules(self) -> list[Any]:
        """All modules that may keep a state of a translation: the decoder itself, the attention, and what users add."""
        return [module for module in self.modules() if hasattr(module, "reorder_incremental_state")]

    def can_expand_incremental_state(self) -> bool:
        """Return whether `expand_incremental_state` reaches all states: only attention modules of relumt have any."""
        has_own_state = type(self).reorder_incremental_state is not TransformerDecoderBase.reorder_incremental_state
        return not has_own_state and all(isinstance(x, MechanismAttention) for x in self.recurrent_modules[1:])


FAIRSEQ_CLASS_NAMES = {
    "MechanismAttention": "MultiheadAttention",
    "MechanismEncoder": "TransformerEncoder",
    "MechanismDecoder": "TransformerDecoder",
    "MechanismEncoderLayer": "TransformerEncoderLayerBase",
    "MechanismDecoderLayer": "TransformerDecoderLayerBase",
}
"""Class name in relumt → the name that --retain-dropout-modules uses for it."""


class Dropout(FairseqDropout):
    """fairseq's dropout, in training or if --retain-dropout asks for it in inference, with relumt's faster function."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Return `x` of any shape with dropout; never in place, whatever `inplace` allows."""
        return dropout(x, self.p) if self.training or self.apply_during_inference else x


def use_fast_dropout(model: nn.Module) -> None:
    """Replace fairseq's dropout modules by `Dropout`; --retain-dropout-modules takes the names of fairseq's classes."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, FairseqDropout):
                owner = FAIRSEQ_CLASS_NAMES.get(child.module_name, child.module_name)
                setattr(parent, name, Dropout(child.p, module_name=owner))


def wrap_layer(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Wrap `layer` for activation checkpointing and fully sharded data parallelism if `cfg` asks for them."""
    min_num_params = cfg.min_params_to_wrap
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        min_num_params = 0  # shard all checkpointed layers
    wrapped: nn.Module = fsdp_wrap(layer, min_num_params=min_num_params)
    return wrapped
