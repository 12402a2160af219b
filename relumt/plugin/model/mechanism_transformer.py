"""`mechanism_transformer`: fairseq's Transformer with any attention mechanism and feed-forward variant."""

import hashlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    tiny_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de,
)
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import Tensor, nn

from relumt.attention import GATES
from relumt.errors import UserError, exit_on_user_error
from relumt.plugin.model.argument_checks import check_arguments, check_generation
from relumt.plugin.model.attention_log import AttentionLog
from relumt.plugin.model.built_layers import check_built_layers
from relumt.plugin.model.layers import MechanismDecoder, MechanismEncoder, use_fast_dropout
from relumt.plugin.model.model_settings import as_namespace, flatten_, store_, training_section
from relumt.plugin.options import ARCHITECTURE_SIZES, ARCHITECTURES, VARIANT_CHOICES
from relumt.plugin.training_device import check_training_device


# Without a dataclass: with one, fairseq ignores an architecture's sizes (--arch *_tiny builds 44 M parameters).
@register_model("mechanism_transformer")
class MechanismTransformer(TransformerModel):
    """fairseq's `transformer` with other attention and feed-forward layers; equivalent to it with softmax attention.

    Attributes:
        translates_in_bf16: whether beam search computes products in bf16, on a CPU.
        num_updates: how often the weights have been updated when a batch is trained on.
    """

    translates_in_bf16 = False
    num_updates = 0

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add fairseq's Transformer flags and those of the mechanisms and feed-forward variants."""
        super().add_args(parser)
        for choice in VARIANT_CHOICES:
            choice.add_arguments(parser)
        parser.add_argument(
            "--attention-gate",
            choices=GATES,
            help="gate on the output of every attention: one for each component, or one for each head (default: none)",
        )
        parser.add_argument(
            "--log-attention-interval",
            type=int,
            metavar="N",
            help="log the sparsity, null rate and entropy of attention at every site every N updates (default: never)",
        )

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "MechanismTransformer":
        """Build the model; exit with a one-line message if the arguments are invalid.

        Args:
            args: flags of `fairseq-train`, settings of a checkpoint, or `model` of a Hydra configuration. What a
                checkpoint has to keep is stored in it: defaults, sizes, the vocabulary's fingerprint.
            task: provides the dictionaries.
        """
        settings = as_namespace(args)
        with exit_on_user_error():
            # fairseq does this, too, unless this method is called directly
            ARCH_CONFIG_REGISTRY[getattr(settings, "arch", None) or "mechanism_transformer"](settings)
            for choice in VARIANT_CHOICES:
                choice.check_names(settings)
                # A checkpoint's arguments may include --model-overrides for other models of an ensemble.
                if not hasattr(settings, "vocabulary_fingerprint"):
                    choice.reject_unused_options(settings)
                choice.record_defaults(settings)
            check_arguments(settings, task)
            record_vocabulary(settings, task)
            try:
                model: MechanismTransformer = super().build_model(settings, task)
            except AssertionError as error:
                raise UserError(f"fairseq cannot build this model: {error}") from error
            use_fast_dropout(model)
            store_(args, settings, {*model_flags(), "vocabulary_fingerprint"})
            check_built_layers(model, args)
            model.attention_log = AttentionLog(getattr(settings, "log_attention_interval", None), task)
            return model

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, **kwargs: Any) -> Any:
        """Run fairseq's forward pass; log the attention in training when it is due."""
        with self.attention_log.record(self, src_tokens, prev_output_tokens):
            return super().forward(src_tokens, src_lengths, prev_output_tokens, **kwargs)

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of updates, which fairseq does before every training step; log the trained activations."""
        super().set_num_updates(num_updates)
        self.num_updates = self.attention_log.num_updates = num_updates
        for name in self.trained_activations:
            value = self.get_parameter(name).detach().float().clone()  # meters sum in the dtype of their values
            metrics.log_scalar(name.replace(".activation_fn", ""), value, round=4)

    @cached_property
    def trained_activations(self) -> list[str]:
        """Names of the parameters of feed-forward activations, which are logged as, e.g., "encoder.layers.0.beta"."""
        return [name for name, _ in self.named_parameters() if ".activation_fn." in name]

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare for fairseq-generate; --bf16, which fairseq ignores there, selects products in bf16 on a CPU.

        fairseq skips a last batch whose size is no multiple of 8, and would report BLEU of the other sentences.
        """
        super().prepare_for_inference_(cfg)
        if getattr(cfg, "dataset", None) is not None:
            cfg.dataset.required_batch_size_multiple = 1
        with exit_on_user_error():
            check_generation(cfg)
        self.translates_in_bf16 = cfg.common.bf16

    def set_beam_size(self, beam_size: int) -> None:
        """Let the hypotheses of a beam share one source; fairseq's beam search calls this if a model has it."""
        self.decoder.set_beam_size(beam_size)

    @classmethod
    def build_encoder(
        cls, args: TransformerConfig, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> MechanismEncoder:
        """Build the encoder, which has the mechanism of the site "encoder"."""
        return MechanismEncoder(args, src_dict, embed_tokens)

    @classmethod
    def build_decoder(
        cls, args: TransformerConfig, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> MechanismDecoder:
        """Build the decoder, which has the mechanisms of the sites "decoder" and "cross"."""
        return MechanismDecoder(args, tgt_dict, embed_tokens, no_encoder_attn=args.no_cross_attention)


@cache
def model_flags() -> frozenset[str]:
    """Return the names of the settings that `mechanism_transformer` has."""
    parser = ArgumentParser(add_help=False)
    MechanismTransformer.add_args(parser)
    return frozenset(action.dest for action in parser._actions)


def record_vocabulary(args: Namespace, task: FairseqTask) -> None:
    """Record the vocabulary's fingerprint in `args`, which checkpoints store, or compare it with the recorded one.

    The `args` of a checkpoint have a fingerprint when it translates or is analyzed. Training builds the model from
    the command line, even when it resumes or starts from other weights; `model_comparison` compares fingerprints then.

    Raises:
        UserError: the checkpoint was trained with another vocabulary than the data-bin's.
    """
    fingerprint = vocabulary_fingerprint(task.source_dictionary, task.target_dictionary)
    recorded = getattr(args, "vocabulary_fingerprint", None) or fingerprint
    if recorded != fingerprint:
        raise UserError(
            f"the checkpoint's vocabulary ({recorded}) differs from the one in {task.cfg.data} ({fingerprint}); use "
            "the data-bin that the checkpoint was trained on, or one prepared with the same dictionaries"
        )
    args.vocabulary_fingerprint = fingerprint


def vocabulary_fingerprint(source: Dictionary, target: Dictionary) -> str:
    """Return twelve hexadecimal digits that identify the symbols of two dictionaries and their order."""
    digest = hashlib.sha256()
    for dictionary in (source, target):
        digest.update("\n".join(dictionary.symbols).encode() + b"\0")
    return digest.hexdigest()[:12]


SET_SIZES = (base_architecture, tiny_architecture, transformer_iwslt_de_en, transformer_wmt_en_de)
"""fairseq's functions that set the sizes of an architecture, in the order of ARCHITECTURE_SIZES."""


def keep_gpu_under_bf16(args: Namespace | DictConfig) -> None:
    """Undo that --bf16 selects a TPU if there is a GPU: fairseq assumes that only TPUs train in bfloat16."""
    common = training_section(args, "common")
    if getattr(common, "bf16", False) and torch.cuda.is_available():
        common.tpu = False


def load_on_all_devices(args: Namespace | DictConfig) -> None:
    """Let each process of a training on several devices load the checkpoint itself.

    By default fairseq's first process sends it to the others, which cannot resume: `torch.load` refuses fairseq's
    classes in the message.
    """
    if (checkpoint := training_section(args, "checkpoint")) is not None:
        checkpoint.load_checkpoint_on_all_dp_ranks = True


def register_architectures(prefix: str, attention: str) -> None:
    """Register PREFIX and PREFIX_SIZE: fairseq's sizes, with `attention` as the default mechanism at all sites."""
    for suffix, set_sizes in zip(ARCHITECTURE_SIZES, SET_SIZES, strict=True):

        def architecture(
            args: Namespace | DictConfig, set_sizes: Callable[[Namespace | DictConfig], None] = set_sizes
        ) -> None:
            with exit_on_user_error():
                if isinstance(args, DictConfig):
                    flatten_(args, model_flags())
                if getattr(args, "attention", None) is None:
                    args.attention = attention
                keep_gpu_under_bf16(args)
                check_training_device(as_namespace(args))
            load_on_all_devices(args)
            set_sizes(args)

        register_model_architecture("mechanism_transformer", prefix + suffix)(architecture)


for name, mechanism in ARCHITECTURES.items():
    register_architectures(name, mechanism)
