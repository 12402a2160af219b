"""Loads checkpoints without running code that they may contain, and only if they are intact.

Code can hide in two places. In pickled objects: `torch.load` is called with `weights_only=True`, which allows only few
classes beyond its own list: the `argparse.Namespace` that fairseq stores, and the NumPy arrays of numbers in which it
stores the statistics of --eval-bleu. In settings: fairseq builds the classes that a checkpoint names, passes some
settings to `eval`, and opens files that others name. So the names must be registered ones and settings of plain types;
those that reach an `eval` must be written as numbers, and those that name files are dropped.
"""

import pickle
import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy
import torch
from torch import Tensor

from relumt.errors import UserError
from relumt.installation import prepare_fairseq_import
from relumt.plugin.checkpoints.folder import find_damage
from relumt.plugin.options import flat_settings

UNSUPPORTED = re.compile(r"Unsupported (global|class|operand)\S* (GLOBAL )?\S{1,80}")
"""What torch.load says of a name that `weights_only=True` does not allow."""

NUMBERS = re.compile(r"(True|False|None|(?!\*\*)[\d\s.,()\[\]+*-])*")
"""Numbers, lists, sums and products, such as fairseq's "[(512, 3)] * 20": nothing that `eval` could call."""

RESTRICTED = {
    "(en|de)coder_(layers|attention)|(gated|self)_attention|project_input|downsample|pretrained": NUMBERS,
    "adaptive_(softmax|input)_cutoff|character_filters|conv_(feature|aggregator)_layers|feature_encoder_spec": NUMBERS,
    "left_pad_(source|target)|((en|de)coder_)?xformers_att_config|conv_layers|input_layers": NUMBERS,
    "dataset_impl": re.compile("raw|lazy|cached|mmap|huffman"),  # "fasta" runs a shell command
    ".*_yaml": re.compile(r"\w[\w.-]*"),  # read with yaml.FullLoader: only a file in the folder of the data
}
"""Settings → what text they may be. fairseq passes those with NUMBERS to `eval`."""

DROPPED = re.compile(
    r"(?!drop_path).*_(path|dir|file|from|checkpoint|script|predictions)|wer_(args|lexicon|kenlm_model)"
    "|eval_(tokenized_)?bleu.*"
)
"""Settings that name files to read or write, folders to import or commands to run, and those of BLEU in validation.

The weights contain what was read from the files. Only the command line may choose to compute BLEU.
"""

TEXT = re.compile(r"(?!.*\$\{)[^\x00-\x1f\x7f]*")
"""Text without control characters and without `${`, with which OmegaConf would insert other values."""

INTERPOLATED = {"train_subset": "train", "dataset_impl": None, "required_seq_len_multiple": 1, "sentence_avg": False}
"""Settings whose defaults fairseq takes from sections that a vetted configuration lacks."""

KEPT = ("max_source_positions", "max_target_positions", "seed", "data", "source_lang", "target_lang")
"""Settings that models and tasks have although other components have them, too."""


def allow_fairseq_checkpoints() -> None:
    """Let `torch.load(weights_only=True)` read a Namespace of arguments and NumPy arrays of numbers."""
    reconstruct: Any = numpy.empty(0).__reduce__()[0]
    named = [(reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]  # NumPy 1 and 2
    dtypes = [type(numpy.dtype(name)) for name in ("int64", "float64", "float32")]
    torch.serialization.add_safe_globals([Namespace, *named, numpy.ndarray, numpy.dtype, *dtypes])


def load_checkpoint_safely(path: str | Path, mmap: bool = False) -> dict[str, Any]:
    """Load a fairseq checkpoint to the CPU; with `mmap`, leave its tensors in the file until used.

    Raises:
        OSError: the file cannot be read.
        UserError: the file is damaged or not a fairseq checkpoint, or contains code.
    """
    allow_fairseq_checkpoints()
    try:
        if not (damage := find_damage(Path(path))):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: rejected, it contains code ({shorten_message(error)}); use a checkpoint from a source you trust"
        ) from None
    except (OSError, MemoryError):
        raise
    except Exception as error:  # damage that no checksum covers can make torch.load raise anything
        damage = f"damaged ({shorten_message(error)})"
    if damage:
        raise UserError(f"{path}: not a readable checkpoint, it is {damage}; use another one, or a copy of this one")
    model = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    if not isinstance(model, Mapping) or not all(isinstance(tensor, Tensor) for tensor in model.values()):
        raise UserError(f"{path}: not a fairseq checkpoint, since it has no tensors in 'model'; pass a checkpoint_*.pt")
    return checkpoint


def shorten_message(error: BaseException) -> str:
    """Return what torch.load does not allow, or at most 120 characters of the first line of an exception's message."""
    message = str(error).strip()
    if refused := UNSUPPORTED.search(message):
        return refused[0]
    return message.partition("\n")[0][:120]


def stored_settings(checkpoint: Mapping[str, Any], component: str) -> dict[str, Any]:
    """Return a section of a checkpoint's configuration as it is, {} if there is none.

    It is in "cfg" or, as fairseq stored it before 0.11 together with all others, in "args". A component's name is in
    "_name", settings of nested sections are under the names of their flags.
    """
    args, config = checkpoint.get("args"), checkpoint.get("cfg")
    section = args if args is not None else config.get(component) if isinstance(config, Mapping) else None
    settings = vars(section) if isinstance(section, Namespace) else section if isinstance(section, Mapping) else {}
    settings = {key: value for key, value in dict(settings or {}).items() if isinstance(key, str)}
    if args is not None:
        settings["_name"] = settings.get("arch" if component == "model" else component)
    if component == "model":
        settings.setdefault("_name", settings.get("arch"))
    return flat_settings(settings)


def fairseq_config(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return the configuration of a checkpoint that fairseq may see, without the settings of training.

    Returns:
        The sections "model" (a namespace, as fairseq stores it), "task" and "criterion", with names in "_name". An
        unknown criterion is None, because translating does not need it.

    Raises:
        UserError: the model or the task is not registered, or a setting is not allowed.
    """
    config: dict[str, Any] = {"criterion": None}
    for component, (classes, dataclasses) in registries().items():
        stored = stored_settings(checkpoint, component)
        name = stored.pop("_name", None)
        if isinstance(name, str) and name in classes:
            dataclass = dataclasses.get(name)
            known = {field.name: field.default for field in fields(dataclass)} if dataclass else {}
            if dataclass is None or component == "model":
                others, defaults = training_settings().keys() - known, {}
                given = {key: value for key, value in stored.items() if key not in others}
            else:
                defaults = {
                    key: value for key, value in (known | INTERPOLATED).items() if key in known and is_plain(value)
                }
                given = {key: value for key, value in stored.items() if key in known and not DROPPED.fullmatch(key)}
            config[component] = defaults | check(given, path) | {"_name": name}
        elif component != "criterion":
            raise UserError(
                f"{path}: rejected the {component} {describe_value(name)}, which is not registered in fairseq; pass a "
                "checkpoint of fairseq-train, with the --user-dir that defines it"
            )
    name = config["model"]["_name"]
    return config | {"model": Namespace(**config["model"] | {"arch": name})}


def registries() -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return fairseq's classes of each component, and the dataclasses of their settings, by name."""
    if "fairseq" not in sys.modules:  # it silences fairseq's log
        prepare_fairseq_import()
    from fairseq import criterions, models, tasks

    return {
        "model": (models.ARCH_MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY),
        "task": (tasks.TASK_REGISTRY, tasks.TASK_DATACLASS_REGISTRY),
        "criterion": (criterions.CRITERION_REGISTRY, criterions.CRITERION_DATACLASS_REGISTRY),
    }


def training_settings() -> dict[str, Any]:
    """Return fairseq's settings that are not those of a model or task, with their defaults."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.registry import REGISTRIES

    sections = [field.type for field in fields(FairseqConfig) if is_dataclass(field.type)]
    for registry in REGISTRIES.values():
        sections += registry["dataclass_registry"].values()
    defaults = {field.name: field.default for section in sections for field in fields(section)}
    return dict.fromkeys((*REGISTRIES, "task")) | {
        key: value if is_plain(value) else None for key, value in defaults.items() if key not in KEPT
    }


def is_plain(value: Any) -> bool:
    """Return whether a value is none, a number or text without references to other settings."""
    return type(value) in (NoneType, bool, int, float) or (type(value) is str and "${" not in value)


def check(settings: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return settings without what is dropped; raise UserError if one is not allowed."""
    checked = {}
    for name, value in settings.items():
        try:
            checked[name] = check_value(name, value)
        except ValueError:
            raise UserError(
                f"{path}: rejected the setting {name}={describe_value(value)}, which is not what fairseq-train stores; "
                "use a checkpoint from a source you trust"
            ) from None
    return checked


def check_value(name: object, value: Any) -> Any:
    """Return a setting, None if it is dropped, after checking all that it contains; raise ValueError if not allowed."""
    if DROPPED.fullmatch(str(name)):
        return None
    if isinstance(value, Mapping):
        return {key: check_value(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [check_value(name, item) for item in value]
    patterns = [TEXT, *(pattern for names, pattern in RESTRICTED.items() if re.fullmatch(names, str(name)))]
    if not (all(p.fullmatch(value) for p in patterns) if isinstance(value, str) else is_plain(value)):
        raise ValueError
    return value


def describe_value(value: object) -> str:
    """Return a value from a checkpoint as a short text of one line."""
    return repr(value)[:60] if isinstance(value, str | int | float) else f"a value of type {type(value).__name__}"


def vet_checkpoint(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return a checkpoint that fairseq can load: its names are registered, its settings allowed, nothing is missing.

    A checkpoint without training state gets an empty one, because translating needs that.

    Raises:
        UserError: a name or a setting is not allowed.
    """
    config = fairseq_config(checkpoint, path)
    config["model"] = Namespace(**training_settings() | vars(config["model"]))
    for component, (_, dataclasses) in registries().items():
        section = config[component]
        # A class without a dataclass may read all settings.
        if isinstance(section, dict) and dataclasses.get(section["_name"]) is None:
            config[component] = Namespace(**training_settings() | section | {component: section["_name"]})
    vetted = dict(checkpoint) | {"cfg": config, "args": None, "model": dict(checkpoint["model"])}
    has_training_state = vetted.get("optimizer_history") and vetted.get("extra_state")
    return vetted if has_training_state else vetted | empty_training_state()


def empty_training_state() -> dict[str, Any]:
    """Return the training state of a checkpoint that has only weights, as far as fairseq needs it for translation."""
    entry = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {"optimizer_history": [entry], "extra_state": {"train_iterator": {"epoch": 1}}, "last_optimizer_state": None}
