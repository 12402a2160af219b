"""Compares the model of a checkpoint with the one that is to go on training from it.

Attention mechanisms, heads, gates and vocabularies of one size have parameters of the same names and shapes, so fairseq
would load a softmax checkpoint into a ReLUFormer and train on.
"""

from collections.abc import Iterable
from typing import Any

from relumt.errors import UserError
from relumt.options import VARIANT_CHOICES
from relumt.variant_spec import flag_name

COMPARED_SETTINGS = (
    *(
        f"{side}_{setting}"
        for side in ("encoder", "decoder")
        for setting in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "normalize_before", "learned_pos")
    ),
    *("activation_fn", "attention_gate", "layernorm_embedding", "no_scale_embedding", "no_token_positional_embeddings"),
    *("no_cross_attention", "cross_self_attention", "share_all_embeddings", "share_decoder_input_output_embed"),
    "vocabulary_fingerprint",
)
"""Settings of fairseq's Transformer, and of relumt, that change what the same weights compute, or their shapes.

Dropout and other settings of training may differ.
"""

FREE_OPTIONS = ("relu_initial_score", "relu_initial_gain", "inhibitor_initial_distance", "inhibitor_implementation")
"""Options of mechanisms that concern only the initial weights or the speed."""

LABELS = {"vocabulary_fingerprint": "the vocabulary"}
"""Setting → how an error calls it, if it is not a flag."""

SHARING_FLAGS = (("share_all_embeddings",), ("share_decoder_input_output_embed", "share_all_embeddings"))
"""Settings that share a matrix: between both languages, and between input and output of the decoder.

Each of a group's settings shares it.
"""

Differences = dict[str, tuple[Any, Any]]
"""What differs → its value in the checkpoint's model and in the one to be trained."""


def refuse_other_model(stored: Any, requested: Any, path: str) -> None:
    """Raise UserError if a training of the model `requested` cannot go on from a checkpoint of the model `stored`.

    Args:
        stored: settings of the checkpoint's model; those that it lacks, as of an older version, are not compared.
        requested: settings of the model that is to be trained.
        path: path of the checkpoint, for the error message.
    """
    differences = _different_variants(stored, requested) | _different_values(stored, requested, COMPARED_SETTINGS)
    if differences:
        described = ", ".join(f"{name} {old} (now {new})" for name, (old, new) in differences.items())
        raise UserError(
            f"{path}: belongs to another model, with {described}; train the same model, choose another --save-dir, or "
            "pass the checkpoint to --finetune-from-model to start a new training from its weights"
        )


def refuse_other_embeddings(stored: Any, requested: Any, path: str) -> None:
    """Raise UserError if the embeddings of `stored` would get the places of other words in `requested`, or be lost.

    They are lost if several matrices become one: fairseq would load each into it, so that only the last would remain.

    Args:
        stored: settings of the checkpoint's model; those that it lacks, as of an older version, are not compared.
        requested: settings of the model that is to be trained.
        path: path of the checkpoint, for the error message.
    """
    if _different_values(stored, requested, ["vocabulary_fingerprint"]):
        raise UserError(
            f"{path}: was trained with another vocabulary; prepare the data with its dictionaries (fairseq-preprocess "
            "--srcdict, --tgtdict and its BPE codes), or start from other weights"
        )
    for flags in SHARING_FLAGS:
        is_shared = [any(getattr(model, flag, False) for flag in flags) for model in (stored, requested)]
        if hasattr(stored, flags[0]) and is_shared == [False, True]:
            given = next(flag for flag in flags if getattr(requested, flag, False))
            raise UserError(
                f"{path}: has separate embeddings, and {flag_name(given)} would keep only the last; drop the flag"
            )


def _different_variants(stored: Any, requested: Any) -> Differences:
    """Return the sites at which the models have other attention or feed-forward layers, and options that differ."""
    differences: Differences = {}
    for choice in VARIANT_CHOICES:
        for site in choice.sites:
            old, new = choice.name_at(stored, site), choice.name_at(requested, site)
            if old != new:
                differences[f"{choice.name} at the site '{site}'"] = (old, new)
            elif old in choice.registry:
                options = {attribute for attribute, _ in choice.registry[old].flags()}.difference(FREE_OPTIONS)
                differences |= _different_values(stored, requested, sorted(options))
    return differences


def _different_values(stored: Any, requested: Any, names: Iterable[str]) -> Differences:
    """Return the settings whose values differ, among those that both models have."""
    shared = (name for name in names if hasattr(stored, name) and hasattr(requested, name))
    pairs = {name: (getattr(stored, name), getattr(requested, name)) for name in shared}
    return {LABELS.get(name, flag_name(name)): pair for name, pair in pairs.items() if pair[0] != pair[1]}
