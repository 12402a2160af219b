"""A softmax model as a checkpoint of fairseq's `transformer`, which plain fairseq and CTranslate2's converter read.

The weights are the same under the same names, so only the settings change. They are stored in "args", twice: as items
and as attributes of an OrderedDict. `torch.load(weights_only=True)`, the default since PyTorch 2.6, refuses the
namespace that fairseq itself stores there, and fairseq and CTranslate2 read only attributes.
"""

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.plugin.checkpoints.loading import empty_training_state, fairseq_config
from relumt.plugin.options import ATTENTION_CHOICE, FEEDFORWARD_CHOICE, variant_settings

STOCK_ARCHITECTURE = "transformer"

STOCK_ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
"""Feed-forward variant → fairseq's --activation-fn that is the same function; "stock" has any."""

UNKNOWN_TO_FAIRSEQ = ("vocabulary_fingerprint",)

SAFETENSORS_ADVICE = "export it --to safetensors, which relumt loads"


def stock_checkpoint(checkpoint: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a relumt checkpoint as one of fairseq's `transformer`.

    Args:
        checkpoint: as `open_checkpoint_safely` returns it.
        path: path of the checkpoint, for error messages.

    Raises:
        UserError: fairseq's `transformer` cannot compute what the model computes.
    """
    config = fairseq_config(checkpoint, path)
    require_stock_counterpart(config["model"], config["task"], path)
    variants = variant_settings()
    settings = {name: value for name, value in vars(config["model"]).items() if name not in variants}
    settings |= {name: value for name, value in config["task"].items() if not name.startswith("_")}
    for name in UNKNOWN_TO_FAIRSEQ:
        settings.pop(name, None)
    settings |= {
        "activation_fn": activation(config["model"], path),
        "arch": stock_architecture(config["model"].arch),
        "task": "translation",
        "data": "",
    }
    return {"args": as_attributes(settings), "cfg": None, "model": checkpoint["model"], **empty_training_state()}


def require_stock_counterpart(model: Namespace, task: Mapping[str, Any], path: Path) -> None:
    """Raise UserError if a model has a part that fairseq's `transformer` lacks."""
    mechanisms = {site: ATTENTION_CHOICE.name_at(model, site) for site in ATTENTION_CHOICE.sites}
    others = sorted({name for name in mechanisms.values() if name != "softmax"})
    if others:
        raise UserError(
            f"{path}: has {', '.join(others)} attention, which plain fairseq lacks and CTranslate2 cannot run; "
            f"{SAFETENSORS_ADVICE}"
        )
    if gate := getattr(model, "attention_gate", None):
        raise UserError(
            f"{path}: has a gate on its attention (--attention-gate {gate}), which plain fairseq and CTranslate2 lack; "
            f"{SAFETENSORS_ADVICE}"
        )
    if length := task.get("document_length"):
        raise UserError(
            f"{path}: reads chunks of documents of up to {length} tokens, which plain fairseq cannot make from a "
            f"data-bin; {SAFETENSORS_ADVICE}"
        )


def activation(model: Namespace, path: Path) -> str:
    """Return the --activation-fn that makes fairseq's feed-forward layers those of a model.

    Raises:
        UserError: there is none, or the two sides need different ones.
    """
    variants = {site: FEEDFORWARD_CHOICE.name_at(model, site) for site in FEEDFORWARD_CHOICE.sites}
    stock = getattr(model, "activation_fn", "relu")
    found = {site: stock if name == "stock" else STOCK_ACTIVATIONS.get(name) for site, name in variants.items()}
    names = sorted(set(variants.values()))
    if None in found.values() or len(set(found.values())) > 1:
        raise UserError(
            f"{path}: has the feed-forward layer{'s' if len(names) > 1 else ''} {' and '.join(names)}, which plain "
            f"fairseq and CTranslate2 lack; {SAFETENSORS_ADVICE}"
        )
    return str(found["encoder"])


def stock_architecture(name: str) -> str:
    """Return the architecture to store. Its sizes do not matter, because the settings have them all."""
    return name if name.startswith(STOCK_ARCHITECTURE) else STOCK_ARCHITECTURE


def as_attributes(settings: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return settings as items and as attributes of one object; see the module's docstring."""
    arguments = OrderedDict(sorted(settings.items()))
    vars(arguments).update(arguments)
    return arguments
