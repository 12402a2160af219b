"""A folder with everything that a model needs to translate, without pickle: `relumt export --to safetensors`.

model.safetensors   weights; a tensor that has several names is stored once, and the metadata maps the other names
config.json         settings of model, task and search, and the checksum of the weights
prepare.json …      the preparation of text, as in a data-bin: dictionaries and subwords
"""

import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import relumt
from relumt.errors import UserError
from relumt.files import file_sha256, read_json
from relumt.plugin.checkpoints.loading import fairseq_config, vet_checkpoint
from relumt.runs.inference.search_settings import SearchSettings

CONFIG, WEIGHTS = "config.json", "model.safetensors"
EXPORT_AGAIN = "export the model again"


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
        checkpoint: as `open_checkpoint_safely` returns it.
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
