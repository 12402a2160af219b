"""`mechanism_transformer`: fairseq's Transformer with any attention mechanism and feed-forward variant.

`fairseq-train` passes its settings as a Namespace with the flags of all components. `fairseq-hydra-train` passes a
DictConfig with the model's settings alone, in which sizes may be nested (`encoder: {layers: 6}` for `--encoder-layers
6`); its parent has the other components. `TransformerConfig.from_namespace` keeps settings that it does not know, such
as the attention mechanism, from a Namespace only: it silently drops those of a DictConfig.
"""

import hashlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection
from functools import cache, cached_property
from typing import Any, cast

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
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from relumt.attention import GATES, QK_NORMS
from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError, print_status
from relumt.plugin.model.attention_log import AttentionLog
from relumt.plugin.model.layers import MechanismDecoder, MechanismEncoder, use_fast_dropout
from relumt.plugin.options import (
    ARCHITECTURE_SIZES,
    ARCHITECTURES,
    NESTED_SETTINGS,
    VARIANT_CHOICES,
    flat_settings,
    suggest,
)
from relumt.plugin.training_device import check_training_device, check_translation_in_bf16, recomputes_activations
from relumt.process import whole_number


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
            "--attention-qk-norm",
            nargs="?",
            const="constant",
            choices=QK_NORMS,
            help="normalize the queries and keys of every attention, with a trained scale for each head; it is the "
            "same for any number n of visible keys (constant) or grows with log n (default: none)",
        )
        parser.add_argument(
            "--attention-softmax-epochs",
            type=whole_number,
            default=0,
            metavar="N",
            help="train with softmax in the place of the mechanisms for N epochs, then with them (default: 0)",
        )
        parser.add_argument(
            "--log-attention-interval",
            type=int,
            metavar="N",
            help="log the sparsity, null rate and entropy of attention at every site every N updates (default: never)",
        )

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "MechanismTransformer":
        """Build the model.

        Args:
            args: flags of `fairseq-train`, settings of a checkpoint, or `model` of a Hydra configuration. What a
                checkpoint has to keep is stored in it: defaults, sizes, the vocabulary's fingerprint.
            task: provides the dictionaries.

        Raises:
            UserError: the settings contradict each other, the data-bin, or what this machine can do.
        """
        settings = as_namespace(args)
        check_training_device(settings)
        is_trained = hasattr(settings, "vocabulary_fingerprint")
        for choice in VARIANT_CHOICES:
            # A checkpoint's arguments may include --model-overrides for other models of an ensemble.
            choice.check(settings, is_trained)
            choice.record_defaults(settings)
        for name in sorted(stored_settings()):
            if "drop" in name and not 0 <= (probability := getattr(settings, name, None) or 0) <= 1:  # NaN is not
                raise UserError(f"{flag_name(name)} is {probability}; choose a number from 0 to 1")
        # Activation checkpointing would recompute the logged layers, without the hook and with another dropout mask.
        if getattr(settings, "log_attention_interval", None) and recomputes_activations(settings):
            raise UserError("--log-attention-interval cannot observe layers under --checkpoint-activations; drop one")
        softmax_epochs, num_epochs = (getattr(settings, name, 0) for name in ("attention_softmax_epochs", "max_epoch"))
        if softmax_epochs >= (num_epochs or 1) and not is_trained:
            print_status(f"softmax trains the first {softmax_epochs} epochs, perhaps all: give a larger --max-epoch")
        record_vocabulary(settings, task)
        try:
            model: MechanismTransformer = super().build_model(settings, task)
        except (AssertionError, ValueError, ArithmeticError, RuntimeError) as error:
            raise UserError(f"fairseq cannot build this model: {error}; change the flags") from error
        use_fast_dropout(model)
        if isinstance(args, DictConfig):
            with open_dict(args):
                args.update({name: value for name, value in vars(settings).items() if name in stored_settings()})
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
        if cfg.common.bf16:
            check_translation_in_bf16(cfg.common.cpu)
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
def stored_settings() -> frozenset[str]:
    """Return the names of the settings that `mechanism_transformer` has, which checkpoints store."""
    parser = ArgumentParser(add_help=False)
    MechanismTransformer.add_args(parser)
    return frozenset(action.dest for action in parser._actions) | {"vocabulary_fingerprint"}


def record_vocabulary(args: Namespace, task: FairseqTask) -> None:
    """Record the vocabulary's fingerprint in `args`, which checkpoints store, or compare it with the recorded one.

    The `args` of a checkpoint have a fingerprint when it translates or is analyzed. Training builds the model from
    the command line, even when it resumes or starts from other weights; `refuse_other_model` compares them then.

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


def flatten_(model: DictConfig, known: Collection[str]) -> None:
    """Replace the nested settings of a model's Hydra configuration by flat ones.

    Args:
        model: the configuration, which is changed.
        known: settings that the model has. Hydra itself checks names only for models with a dataclass.

    Raises:
        UserError: a setting is not among them, so it would have no effect.
    """
    flat = flat_settings(model)
    for name in flat:
        if name not in known and name not in ("_name", "arch"):
            raise UserError(
                f"model.{name} is no setting of this model; {suggest(str(name), known)}correct the name, or drop it"
            )
    with open_dict(model):
        for name in NESTED_SETTINGS:
            model.pop(name, None)
        model.update(flat)


def as_namespace(model: Namespace | DictConfig) -> Namespace:
    """Return the settings of the model and of all other components as `fairseq-train` passes them.

    A Namespace is returned as it is. Of a flat Hydra configuration, all sections are joined; the model's settings
    precede others of the same name.
    """
    if not isinstance(model, DictConfig):
        return model
    joined: dict[str, Any] = {}
    if (root := model._get_root()) is not model:
        for component, section in _plain(root).items():
            is_section = isinstance(section, dict)
            joined |= (section if is_section else {}) | {component: section.get("_name") if is_section else section}
    joined |= _plain(model)
    joined["arch"] = joined.get("_name") or joined.get("arch")
    return Namespace(**joined)


def _plain(config: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return cast(dict[str, Any], plain)


SET_SIZES = (base_architecture, tiny_architecture, transformer_iwslt_de_en, transformer_wmt_en_de)
"""fairseq's functions that set the sizes of an architecture, in the order of ARCHITECTURE_SIZES."""


def register_architectures(prefix: str, attention: str) -> None:
    """Register PREFIX and PREFIX_SIZE: fairseq's sizes, with `attention` as the default mechanism at all sites."""
    for suffix, set_sizes in zip(ARCHITECTURE_SIZES, SET_SIZES, strict=True):

        def architecture(
            args: Namespace | DictConfig, set_sizes: Callable[[Namespace | DictConfig], None] = set_sizes
        ) -> None:
            common: Any = args
            if isinstance(args, DictConfig):
                flatten_(args, stored_settings())
                common = OmegaConf.select(cast(DictConfig, args._get_root()), "common")
            if getattr(args, "attention", None) is None:
                args.attention = attention
            if getattr(common, "bf16", False) and torch.cuda.is_available():
                common.tpu = False  # fairseq assumes that only TPUs train in bfloat16
            set_sizes(args)

        register_model_architecture("mechanism_transformer", prefix + suffix)(architecture)


for name, mechanism in ARCHITECTURES.items():
    register_architectures(name, mechanism)
