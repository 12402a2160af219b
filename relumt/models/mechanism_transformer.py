"""`mechanism_transformer`: fairseq's Transformer with any mechanism and any feed-forward, and its architectures."""

import hashlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import cached_property

import torch
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    tiny_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de,
)
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.checkpoints import refuse_code_in_config
from relumt.errors import UserError, exit_on_user_error
from relumt.models.attention_log import AttentionLog
from relumt.models.refusals import refuse_impossible
from relumt.modules.layers import MechanismDecoder, MechanismEncoder, use_fairseq_dropout_names
from relumt.options import VARIANT_CHOICES


# Without a dataclass: with one, fairseq ignores the sizes that an architecture sets (--arch *_tiny gave 44 M).
@register_model("mechanism_transformer")
class MechanismTransformer(TransformerModel):
    """A stock `transformer` but for its attention and feed-forward; with softmax the same function of its weights."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add fairseq's Transformer flags and those of the mechanisms and feed-forward variants."""
        super().add_args(parser)
        for choice in VARIANT_CHOICES:
            choice.add_arguments(parser)
        parser.add_argument(
            "--log-attention-interval",
            type=int,
            metavar="N",
            help="log sparsity, null rate and entropy of every site at each N-th update (default: never)",
        )

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> "MechanismTransformer":
        """Build the model; what the user got wrong ends in one line and exit status 2."""
        with exit_on_user_error():
            refuse_code_in_config(vars(args))
            for choice in VARIANT_CHOICES:
                if not is_of_checkpoint(args):  # whose --model-overrides may be for another model of an ensemble
                    choice.reject_unused_options(args)
                choice.record_defaults(args)
            refuse_impossible(args, task)
            remember_vocabulary(args, task)
            model = super().build_model(args, task)
            use_fairseq_dropout_names(model)
            model.attention_log = AttentionLog(getattr(args, "log_attention_interval", None), task)
            return model

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, **more):
        """As fairseq's; while training, attentions are looked at where that is due."""
        with self.attention_log.watching(self, src_tokens, prev_output_tokens):
            return super().forward(src_tokens, src_lengths, prev_output_tokens, **more)

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq's announcement before every training step; where there are trained activations, they are logged."""
        super().set_num_updates(num_updates)
        self.attention_log.set_num_updates(num_updates)
        for name in self.trained_activations:
            value = self.get_parameter(name).detach().float().clone()  # a meter sums up in the type of its values
            metrics.log_scalar(name.replace(".activation_fn", ""), value, round=4)

    @cached_property
    def trained_activations(self) -> list[str]:
        """Names of the feed-forward activations' parameters; logged as, e.g., "encoder.layers.0.beta"."""
        return [name for name, _ in self.named_parameters() if ".activation_fn." in name]

    def set_beam_size(self, beam_size: int) -> None:
        """fairseq's search announces its beam to models that want it; then a sentence's keys are kept once."""
        self.decoder.set_beam_size(beam_size)

    @classmethod
    def build_encoder(cls, args: TransformerConfig, src_dict: Dictionary, embed_tokens: nn.Embedding):
        """Encoder with the mechanism of the site "encoder"."""
        return MechanismEncoder(args, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: TransformerConfig, tgt_dict: Dictionary, embed_tokens: nn.Embedding):
        """Decoder with the mechanisms of the sites "decoder" and "cross"."""
        return MechanismDecoder(args, tgt_dict, embed_tokens, no_encoder_attn=args.no_cross_attention)


def is_of_checkpoint(args: Namespace) -> bool:
    """Whether a model is built from its checkpoint, to translate or to be analysed, and not to be trained."""
    return hasattr(args, "vocabulary_fingerprint")


def remember_vocabulary(args: Namespace, task: FairseqTask) -> None:
    """Write the vocabulary's fingerprint into `args`, which the checkpoint keeps, or compare it with what is there.

    It is there where a model is built from its checkpoint, to translate or to be analysed; in training, resumed or
    started from another's weights, fairseq builds from the flags (relumt.runs compares dictionaries then).

    Raises:
        UserError: a checkpoint of one vocabulary is used with a data-bin of another.
    """
    fingerprint = vocabulary_fingerprint(task.source_dictionary, task.target_dictionary)
    trained_with = getattr(args, "vocabulary_fingerprint", None) or fingerprint
    if trained_with != fingerprint:
        raise UserError(
            f"the checkpoint's vocabulary ({trained_with}) is not the data-bin's ({fingerprint}) in "
            f"{task.cfg.data}; give the data-bin it was trained on or one made with that one's dictionaries"
        )
    args.vocabulary_fingerprint = fingerprint


def vocabulary_fingerprint(source: Dictionary, target: Dictionary) -> str:
    """Twelve hexadecimal digits that change with any symbol or its place."""
    digest = hashlib.sha256()
    for dictionary in (source, target):
        digest.update("\n".join(dictionary.symbols).encode() + b"\0")
    return digest.hexdigest()[:12]


SIZES = {
    "": base_architecture,
    "_tiny": tiny_architecture,
    "_iwslt_de_en": transformer_iwslt_de_en,
    "_wmt_en_de": transformer_wmt_en_de,
}
"""The sizes that [RF] uses are fairseq's: IWSLT14 6+6 layers, 512, 1024, 4 heads; WMT14 the base model."""


def keep_gpu_under_bf16(args: Namespace) -> None:
    """fairseq takes --bf16 to ask for a TPU, for which it then leaves the GPU; where there is one, take that back."""
    if getattr(args, "bf16", False) and torch.cuda.is_available():
        args.tpu = False


def register_architectures(prefix: str, attention: str) -> None:
    """Register PREFIX and PREFIX_SIZE: fairseq's sizes with `attention` at every site that the user leaves open."""
    for suffix, size in SIZES.items():

        def architecture(args: Namespace, size: Callable[[Namespace], None] = size) -> None:
            args.attention = getattr(args, "attention", attention)
            keep_gpu_under_bf16(args)
            size(args)

        register_model_architecture("mechanism_transformer", prefix + suffix)(architecture)


register_architectures("mechanism_transformer", "softmax")
register_architectures("reluformer", "relu")
register_architectures("rela", "rela_g")
register_architectures("inhibitor", "inhibitor")
