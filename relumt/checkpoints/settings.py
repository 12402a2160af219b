"""Which settings of a checkpoint fairseq may see: a list of what is allowed, because fairseq would run the rest.

fairseq looks up classes by names in a checkpoint. Some of these classes pass settings to `eval`, open files that a
setting names, or run shell commands with it. So every name must be a known one, only settings that a Transformer, a
translation task or a criterion reads are passed on, and each has a type that leaves no room for code. Everything else,
such as `user_dir`, is dropped.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from relumt.attention import GATES
from relumt.errors import UserError
from relumt.options import ARCHITECTURE_SIZES, ARCHITECTURES, VARIANT_CHOICES, flat_settings

FAIRSEQ_ARCHITECTURES = (
    "transformer_vaswani_wmt_en_de_big transformer_vaswani_wmt_en_fr_big transformer_wmt_en_de_big "
    "transformer_wmt_en_de_big_t2t transformer_align transformer_wmt_en_de_big_align"
)

KNOWN_NAMES = {
    "model": {
        *(prefix + size for prefix in (*ARCHITECTURES, "transformer") for size in ARCHITECTURE_SIZES),
        *FAIRSEQ_ARCHITECTURES.split(),
    },
    "task": set(
        "translation translation_documents translation_iwslt14 translation_wmt14 translation_europarl7".split()
    ),
    "criterion": {
        "adaptive_loss",
        "cross_entropy",
        "fused_label_smoothed_cross_entropy",
        "label_smoothed_cross_entropy",
        "label_smoothed_cross_entropy_with_alignment",
        "label_smoothed_cross_entropy_with_attention_regularization",
        "label_smoothed_cross_entropy_with_rdrop",
    },
    "optimizer": set("adadelta adafactor adagrad adam adamax composite cpu_adam lamb nag sgd".split()),
    "lr_scheduler": set(
        "cosine fixed inverse_sqrt manual pass_through polynomial_decay reduce_lr_on_plateau step tri_stage "
        "triangular".split()
    ),
    "tokenizer": set("moses nltk space".split()),
    "bpe": set("bert byte_bpe bytes characters fastbpe gpt2 hf_byte_bpe sentencepiece subword_nmt".split()),
    "scoring": set("bert_score bleu chrf meteor sacrebleu wer".split()),
}
"""Component of a configuration → the names that a checkpoint may have for it.

None of the models, tasks and criterions passes a setting of the tables below to `eval`. The other components are built
from the command line only.
"""

Size = Annotated[int, Meta(ge=0, le=2**20)]
Number = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Finite = Annotated[float, Meta(ge=-1e30, le=1e30)]
Digits = Annotated[str, Meta(pattern=r"\A\d{1,7}\Z")]
LayerNumbers = Annotated[str, Meta(pattern=r"\A\d{1,4}(,\d{1,4}){0,999}\Z")]
Fingerprint = Annotated[str, Meta(pattern=r"\A[0-9a-f]{12}\Z")]
Language = Annotated[str, Meta(pattern=r"\A(?![-.])[\w@.+-]{1,64}\Z")]
Word = Annotated[str, Meta(pattern=r"\A(?!.*\$\{)[^\s\x00-\x1f\x7f]{0,256}\Z")]
Text = Annotated[str, Meta(pattern=r"\A(?!.*\$\{)[^\x00-\x1f\x7f]{0,4096}\Z")]
"""Words and text have no `${`, with which OmegaConf would insert other values."""

MODEL_TYPES: dict[str, Any] = {
    **dict.fromkeys(
        "encoder_embed_dim encoder_ffn_embed_dim encoder_layers encoder_attention_heads decoder_embed_dim "
        "decoder_ffn_embed_dim decoder_layers decoder_attention_heads quant_noise_pq_block_size".split(),
        Size,
    ),
    **dict.fromkeys(
        "dropout attention_dropout activation_dropout relu_dropout adaptive_softmax_dropout encoder_layerdrop "
        "decoder_layerdrop quant_noise_pq quant_noise_scalar".split(),
        Probability,
    ),
    **dict.fromkeys(
        "encoder_normalize_before encoder_learned_pos decoder_normalize_before decoder_learned_pos adaptive_input "
        "share_decoder_input_output_embed share_all_embeddings merge_src_tgt_embed no_token_positional_embeddings "
        "layernorm_embedding tie_adaptive_weights tie_adaptive_proj no_scale_embedding no_cross_attention "
        "cross_self_attention no_decoder_final_norm char_inputs export checkpoint_activations offload_activations "
        "full_context_alignment".split(),
        bool,
    ),
    **dict.fromkeys("max_source_positions max_target_positions".split(), Size | None),
    **dict.fromkeys("alignment_heads alignment_layer base_sublayers base_shuffle".split(), Size | None),
    **dict.fromkeys("encoder_layers_to_keep decoder_layers_to_keep".split(), LayerNumbers | None),
    **dict.fromkeys("decoder_input_dim decoder_output_dim".split(), Size | Digits),  # fairseq parses no number
    "activation_fn": Literal["relu", "gelu", "gelu_fast", "gelu_accurate", "tanh", "linear"],
    "adaptive_softmax_cutoff": list[Number] | None,
    "adaptive_softmax_factor": Finite,
    "min_params_to_wrap": Number,
    "vocabulary_fingerprint": Fingerprint,
    # They change what a model computes, but relumt does not support them, so they must not be dropped.
    "base_layers": Literal[0, None],
    "encoder_xformers_att_config": None,
    "decoder_xformers_att_config": None,
}
"""Setting of fairseq's Transformer → its type.

The embeddings' paths are missing: the weights contain them.
"""

TASK_TYPES: dict[str, Any] = {
    **dict.fromkeys("load_alignments left_pad_source left_pad_target truncate_source".split(), bool),
    **dict.fromkeys("max_source_positions max_target_positions document_length".split(), Size),
    **dict.fromkeys("num_batch_buckets required_seq_len_multiple".split(), Size),
    **dict.fromkeys("source_lang target_lang".split(), Language | None),
    "data": Text | None,
    "dataset_impl": Literal["raw", "lazy", "cached", "mmap", None],  # "fasta" runs a shell command
    "document_separator": Word,
    "train_subset": Word,
    "upsample_primary": Number,
}
"""Setting of a translation task → its type. Those of --eval-bleu are missing: only the command line may set them."""

TASK_DEFAULTS = {
    **{"train_subset": "train", "dataset_impl": None, "required_seq_len_multiple": 1},
    **{"eval_bleu": False, "eval_bleu_args": "{}", "eval_bleu_detok": "space", "eval_bleu_detok_args": "{}"},
    **{"eval_tokenized_bleu": False, "eval_bleu_remove_bpe": None, "eval_bleu_print_samples": False},
}
"""fairseq takes the first defaults from sections that a vetted configuration lacks.

The others are those of fairseq-train. A checkpoint's values are dropped; without any, fairseq-validate would ignore
the flags on its command line.
"""

CRITERION_TYPES: dict[str, Any] = {
    "sentence_avg": bool,
    "report_accuracy": bool,
    "cpu_bf16": bool,
    "label_smoothing": Probability,
    "ignore_prefix_size": Size,
    **dict.fromkeys(
        "alignment_lambda reg_alpha attention_norm_weight attention_entropy_weight attention_entropy_bound "
        "attention_norm_margin".split(),
        Finite,
    ),
    **dict.fromkeys("attention_norm_final_weight attention_entropy_final_weight".split(), Finite | None),
    "attention_norm_penalty": Literal["abs", "square", "hinge"],
    "attention_schedule_updates": Number,
}
"""Setting of a criterion → its type."""

MAX_SHOWN, MAX_REASON = 60, 160
"""Characters of a refused value, and of the reason, that are printed."""


class RejectedSettingError(UserError):
    """A checkpoint has a name or a setting that is not allowed.

    Attributes:
        reason: which one, and why.
    """

    def __init__(self, path: Path | str, reason: str, advice: str) -> None:
        super().__init__(f"{path}: rejected {reason}; {advice}")
        self.reason = reason


@cache
def variant_types() -> dict[str, Any]:
    """Return the types of the settings that choose mechanisms and feed-forward variants, and of their options."""
    literal: Any = Literal  # type checkers know Literal only with constants
    types: dict[str, Any] = {"attention_gate": literal[(*GATES, None)]}
    for choice in VARIANT_CHOICES:
        known = literal[(*choice.registry, None)]
        types |= dict.fromkeys([choice.name, *(f"{choice.name}_{site}" for site in choice.sites)], known)
        for name, (option, _) in choice.options().items():
            types[name] = Finite if option.type is float else option.type
    return types


def fairseq_config(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return the configuration of a checkpoint that fairseq may see; the names and types of all its values are known.

    Args:
        checkpoint: its contents, with the configuration in "cfg" or, as fairseq stored it before 0.11, in "args".
        path: path of the checkpoint, for error messages.

    Returns:
        The sections "model" (a namespace, as fairseq stores it), "task" and "criterion". Missing settings get fairseq's
        defaults. The other sections matter only in training, which is configured by the command line.

    Raises:
        UserError: there is no configuration, or a name or value is not allowed.
    """
    sections = _sections(checkpoint, path)
    names = {component: _known_name(component, sections[component], path) for component in KNOWN_NAMES}
    for component in ("model", "task"):
        if names[component] is None:
            raise UserError(f"{path}: does not name its {component}; pass a checkpoint of fairseq-train")
    model = check_settings(flat_settings(sections["model"]), MODEL_TYPES | variant_types(), path)
    task = TASK_DEFAULTS | check_settings(sections["task"], TASK_TYPES, path)
    criterion = {"sentence_avg": False} | check_settings(sections["criterion"], CRITERION_TYPES, path)
    return {
        "model": Namespace(**model, arch=names["model"], _name=names["model"]),
        "task": task | {"_name": names["task"]},
        "criterion": criterion | {"_name": names["criterion"]} if names["criterion"] else None,
    }


def _sections(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, dict[Any, Any]]:
    """Return the settings of each component, with its name in "_name"."""
    args, config = checkpoint.get("args"), checkpoint.get("cfg")
    if args is not None:  # fairseq prefers it
        flat = _upgrade_old_settings(_as_dict(args, "args", path))
        keys = {component: component for component in KNOWN_NAMES} | {"model": "arch"}
        return {component: flat | {"_name": flat.get(key)} for component, key in keys.items()}
    if config is None:
        raise UserError(f"{path}: does not say which model it is (no cfg, no args); pass a checkpoint of fairseq-train")
    sections = _as_dict(config, "cfg", path)
    return {component: _as_dict(sections.get(component), f"cfg.{component}", path) for component in KNOWN_NAMES}


def _as_dict(section: Any, name: str, path: Path | str) -> dict[Any, Any]:
    if section is None:
        return {}
    if isinstance(section, str):  # fairseq stores a tokenizer without settings as its name
        return {"_name": section}
    if isinstance(section, Namespace):
        return dict(vars(section))
    if isinstance(section, Mapping):
        return dict(section)
    raise UserError(
        f"{path}: expected settings in {name}, found {describe_value(section)}; pass a checkpoint of fairseq-train"
    )


def _upgrade_old_settings(flat: dict[Any, Any]) -> dict[Any, Any]:
    """Give the settings of old versions of fairseq their present names and types, as fairseq does."""
    defaults = {"task": "translation"}
    if "max_positions" in flat:
        defaults |= {"max_source_positions": flat["max_positions"], "max_target_positions": flat["max_positions"]}
    truths = {"True": True, "False": False}
    upgraded = defaults | {
        name: truths.get(value, value) if isinstance(value, str) else value for name, value in flat.items()
    }
    if isinstance(data := upgraded.get("data"), list | tuple) and data:
        upgraded["data"] = data[0]
    return upgraded


def _known_name(component: str, section: dict[Any, Any], path: Path | str) -> str | None:
    """Return the name of a component, None if there is none; raise UserError if it is not a known one."""
    keys = ("_name", "arch") if component == "model" else ("_name",)
    names = [section[key] for key in keys if section.get(key) is not None]
    for name in names:
        if not isinstance(name, str) or name not in KNOWN_NAMES[component] or name != names[0]:
            raise RejectedSettingError(
                path,
                f"the {component} {describe_value(name)}, which is not among those that relumt loads "
                "(KNOWN_NAMES in relumt/checkpoints/settings.py)",
                "use a checkpoint of a Transformer for translation",
            )
    return names[0] if names else None


def check_settings(settings: Mapping[Any, Any], types: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return the settings that `types` lists; raise UserError if one has another type."""
    checked = {}
    for name, expected in types.items():
        if name not in settings:
            continue
        try:
            checked[name] = msgspec.convert(settings[name], expected)
        except (msgspec.ValidationError, RecursionError) as error:
            reason = str(error)[:MAX_REASON]
            raise RejectedSettingError(
                path,
                f"the setting {name}={describe_value(settings[name])} ({reason})",
                "use a checkpoint from a source you trust",
            ) from None
    return checked


def describe_value(value: object) -> str:
    """Return a value from a checkpoint as a short text of one line."""
    if value is None or type(value) in (str, bool, float):
        text = repr(value)
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    if type(value) is int and abs(value) < 10**MAX_SHOWN:
        return str(value)
    return f"a value of type {type(value).__name__}"
