"""Models in files of other programs: `relumt export` writes a trained model with its preparation of text to a folder.

--to fairseq writes a softmax model to model.pt as fairseq's `transformer`, which fairseq and CTranslate2 read. The
weights are the same; only the settings change. They are stored in "args", as items and as attributes of an OrderedDict:
`torch.load(weights_only=True)` refuses fairseq's own namespace there, and fairseq and CTranslate2 read only attributes.

--to safetensors writes everything that relumt needs to translate, without pickle: model.safetensors with the weights (a
tensor that has several names is stored once, and the metadata maps the other names), config.json with the settings of
model, task and search and the checksum of the weights, and prepare.json, dictionaries and subwords as in a data-bin.
"""

import json
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fairseq.data import Dictionary
from torch import Tensor

import relumt
from relumt.errors import UserError
from relumt.files import file_sha256, read_json
from relumt.folders import atomic_folder
from relumt.plugin.checkpoints.loading import (
    empty_training_state,
    fairseq_config,
    load_checkpoint_safely,
    vet_checkpoint,
)
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from relumt.plugin.model.mechanism_transformer import vocabulary_fingerprint
from relumt.plugin.options import ATTENTION_CHOICE, FEEDFORWARD_CHOICE, variant_settings
from relumt.runs.data_bin import DataBin, open_data_bin, write_preparation
from relumt.runs.inference.search import SearchSettings, search_of_run
from relumt.runs.inference.text_encoding import require_languages
from relumt.runs.record import find_preparation, find_record_of_checkpoint
from relumt.runs.run_config import find_checkpoint

STOCK_CHECKPOINT, CONFIG, WEIGHTS = "model.pt", "config.json", "model.safetensors"
EXPORT_AGAIN = "export the model again"

STOCK_ARCHITECTURE = "transformer"

STOCK_ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
"""Feed-forward variant → fairseq's --activation-fn that is the same function; "stock" has any."""


def stock_checkpoint(checkpoint: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a relumt checkpoint as one of fairseq's `transformer`.

    Args:
        checkpoint: as `load_checkpoint_safely` returns it.
        path: path of the checkpoint, for error messages.

    Raises:
        UserError: fairseq's `transformer` cannot compute what the model computes.
    """
    config = fairseq_config(checkpoint, path)
    variants = variant_settings()
    settings = {name: value for name, value in vars(config["model"]).items() if name not in variants}
    settings |= config["task"]
    settings.pop("_name", None)  # CTranslate2 would build the architecture of this name, fairseq that of "arch"
    settings.pop("vocabulary_fingerprint", None)  # fairseq does not know it
    architecture = config["model"].arch
    settings |= {
        "activation_fn": stock_activation(config["model"], config["task"], path),
        # Its sizes do not matter, because the settings have them all.
        "arch": architecture if architecture.startswith(STOCK_ARCHITECTURE) else STOCK_ARCHITECTURE,
        "task": "translation",
        "data": "",
    }
    return {"args": as_attributes(settings), "cfg": None, "model": checkpoint["model"], **empty_training_state()}


def stock_activation(model: Namespace, task: Mapping[str, Any], path: Path) -> str:
    """Return the --activation-fn with which fairseq's `transformer` computes what a model does.

    Raises:
        UserError: the model has a part that fairseq's `transformer` lacks.
    """
    mechanisms = {ATTENTION_CHOICE.name_at(model, site) for site in ATTENTION_CHOICE.sites}
    variants = {FEEDFORWARD_CHOICE.name_at(model, site) for site in FEEDFORWARD_CHOICE.sites}
    stock = getattr(model, "activation_fn", "relu")
    activations = {stock if name == "stock" else STOCK_ACTIVATIONS.get(name) for name in variants}
    gate, length = getattr(model, "attention_gate", None), task.get("document_length")
    parts = [f"{name} attention" for name in sorted(mechanisms - {"softmax"})]
    parts += [f"a gate on its attention (--attention-gate {gate})"] if gate else []
    parts += ["QK norm (--attention-qk-norm)"] if getattr(model, "attention_qk_norm", None) else []
    parts += [f"chunks of documents of up to {length} tokens"] if length else []
    if None in activations or len(activations) > 1:
        parts += [f"the feed-forward layers {' and '.join(sorted(variants))}"]
    if parts:
        raise UserError(
            f"{path}: has {', '.join(parts)}, which plain fairseq and CTranslate2 lack; export it --to safetensors, "
            "which relumt loads"
        )
    return str(activations.pop())


def as_attributes(settings: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return settings as items and as attributes of one object; see the module's docstring."""
    arguments = OrderedDict(sorted(settings.items()))
    vars(arguments).update(arguments)
    return arguments


@dataclass(frozen=True)
class ModelConfig:
    """The content of config.json.

    Attributes:
        weights_sha256: SHA-256 of model.safetensors.
        model: settings of the model that `relumt.plugin.checkpoints.loading` allows.
        task: settings of the translation task.
        search: how to translate.
        relumt: version that wrote it.
        format: version of this format.
    """

    weights_sha256: str
    model: dict[str, Any]
    task: dict[str, Any]
    search: SearchSettings = field(default_factory=SearchSettings)
    relumt: str = relumt.__version__
    format: Literal[1] = 1


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder is one of this format."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def write_model(folder: Path, checkpoint: Mapping[str, Any], path: Path, search: SearchSettings) -> None:
    """Write the weights and settings of a checkpoint to a folder.

    Args:
        folder: an existing folder.
        checkpoint: as `load_checkpoint_safely` returns it.
        path: path of the checkpoint, for error messages.
        search: the search settings to record.
    """
    from safetensors.torch import save

    config = fairseq_config(checkpoint, path)
    weights, other_names = deduplicate(checkpoint["model"])
    # Not save_file, whose files only their owner can read.
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt", **other_names}))
    task = {name: value for name, value in config["task"].items() if name != "data"}
    described = ModelConfig(file_sha256(folder / WEIGHTS), vars(config["model"]), task, search)
    (folder / CONFIG).write_text(json.dumps(asdict(described), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def deduplicate(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, in memory of its own, and for the other names of a tensor the name that is kept."""
    kept_names: dict[tuple[Any, ...], str] = {}
    kept: dict[str, Tensor] = {}
    other_names: dict[str, str] = {}
    for name, tensor in weights.items():
        identity = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else (name,)
        first = kept_names.setdefault(identity, name)
        if first == name:
            kept[name] = tensor.clone().contiguous()
        else:
            other_names[name] = first
    return kept, other_names


def read_config(folder: Path) -> ModelConfig:
    """Read the settings in a folder of this format; raise UserError if they are not valid."""
    return read_json(folder / CONFIG, ModelConfig, EXPORT_AGAIN)


def read_model(folder: Path) -> dict[str, Any]:
    """Return a folder's model as a vetted fairseq checkpoint.

    Raises:
        UserError: a file is damaged, or a setting is not allowed.
    """
    config, path = read_config(folder), folder / WEIGHTS
    if file_sha256(path) != config.weights_sha256:
        raise UserError(f"{path}: truncated or damaged (its checksum is not the one in {CONFIG}); {EXPORT_AGAIN}")
    settings = {"model": Namespace(**config.model), "task": config.task, "criterion": None}
    return vet_checkpoint({"cfg": settings, "model": read_weights(path)}, path)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return all tensors in a file, under all their names; raise UserError if it is not in the format."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
            names = {name: kept for name, kept in (file.metadata() or {}).items() if name != "format"}
        return weights | {name: weights[kept] for name, kept in names.items()}
    except (SafetensorError, KeyError) as error:
        raise UserError(f"{path}: not readable weights ({error}); {EXPORT_AGAIN}") from None


def export_model(checkpoint_or_run: Path, data: Path | None, file_format: str, out: Path) -> Path:
    """Write a model to a new folder; return the path of the checkpoint.

    Args:
        checkpoint_or_run: a checkpoint, or the folder of a run for its scored (else best) checkpoint.
        data: data-bin; None for what the run keeps of it.
        file_format: "fairseq" or "safetensors".
        out: the folder, which must be empty or missing.

    Raises:
        UserError: the model cannot be loaded, the format cannot represent it, or there is something in `out`.
    """
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; choose another --out, or delete the folder")
    relumt.register()
    path = find_checkpoint(checkpoint_or_run)
    data_bin = open_data_bin(data or find_preparation(path))
    checkpoint = load_checkpoint_safely(path, mmap=True)
    require_vocabulary(path, checkpoint, data_bin)
    task = fairseq_config(checkpoint, path)["task"]
    require_languages(data_bin, (task.get("source_lang"), task.get("target_lang")))
    if data_bin.prepared:  # fairseq-preprocess leaves no subwords in a data-bin
        data_bin.require_subwords()
    with atomic_folder(out) as stage:
        if file_format == "fairseq":  # which takes the search from its command line
            save_checkpoint_durably(stock_checkpoint(checkpoint, path), stage.result / STOCK_CHECKPOINT)
        else:
            search = search_of_run(find_record_of_checkpoint(path), task.get("document_length", 0))
            write_model(stage.result, checkpoint, path, search)
        write_preparation(stage.result, data_bin)
    return path


def require_vocabulary(path: Path, checkpoint: Mapping[str, Any], data_bin: DataBin) -> None:
    """Raise UserError if a checkpoint was trained with another vocabulary than that of a data-bin.

    Checkpoints of relumt's models have a fingerprint of both dictionaries; others tell only the number of symbols.
    """
    source, target = (Dictionary.load(str(data_bin.dictionary_path(language))) for language in data_bin.languages)
    recorded = getattr(fairseq_config(checkpoint, path)["model"], "vocabulary_fingerprint", None)
    if recorded is not None:
        differs = recorded != vocabulary_fingerprint(source, target)
    else:
        embeddings = [checkpoint["model"].get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
        sizes = zip(embeddings, (source, target), strict=True)
        differs = any(embedding is not None and len(embedding) != len(symbols) for embedding, symbols in sizes)
    if differs:
        raise UserError(
            f"{path}: was trained with another vocabulary than that of {data_bin.folder}; give the data-bin that it "
            "was trained on (--data, or DATA_BIN for the scripts)"
        )
