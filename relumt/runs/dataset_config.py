"""Datasets: the flags of training and translation that configs/datasets/NAME.toml holds, and where the data-bin is.

A file has these keys, all optional:

    base = "NAME"              take the flags and average_checkpoints of another dataset; those given here replace them
    data_bin = "NAME"          the data is in data-bin/NAME (default: the file's own name)
    train = '''…'''            flags of fairseq-train
    generate = '''…'''         flags of fairseq-generate
    average_checkpoints = 5    translate with the average of the last 5 checkpoints (default: with the best one)
    starts_from = "DATASET"    train the same model on that dataset first, and start from its weights

    [documents]                train, generate and starts_from of NAME_N, which has documents of at most N tokens
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.runs.flags import Flags, parse_flag_lines

KEY_TYPES = {
    "base": str,
    "data_bin": str,
    "train": str,
    "generate": str,
    "average_checkpoints": int,
    "starts_from": str,
    "documents": dict,
}
DOCUMENT_KEYS = ("train", "generate", "starts_from")
DATASET_WITH_LENGTH = re.compile(r"(?P<name>.+)_(?P<length>[1-9]\d*)")


@dataclass(frozen=True)
class DatasetConfig:
    """How to train and translate on a dataset.

    Attributes:
        path: its file.
        name: what the user calls it; with the length limit of its documents if it has one.
        data_bin: where its data-bin is unless the user says otherwise.
        train, generate: flags of fairseq-train and fairseq-generate.
        average_checkpoints: number of last checkpoints whose average translates; 0 to use the best checkpoint.
        starts_from: dataset on which the same model is trained first, "" for none.
    """

    path: Path
    name: str
    data_bin: Path
    train: Flags = field(default_factory=dict)
    generate: Flags = field(default_factory=dict)
    average_checkpoints: int = 0
    starts_from: str = ""

    def how_to_make(self, data_bin: Path) -> str:
        """Return the command that makes `data_bin`: a script of its own, or the one for any parallel corpus."""
        script = self.path.parents[2] / "data_prep" / f"{data_bin.name}.sh"
        if script.is_file():
            return f"data_prep/{script.name}"
        return f"data_prep/prepare.sh … --out {data_bin} (docs/tables.md describes the input)"


def load_dataset(name: str, datasets: Path) -> DatasetConfig | None:
    """Read a dataset's file in the folder `datasets`; return None if there is none.

    The name of a dataset with documents may end in their length limit: europarl7_en_de_512.

    Raises:
        UserError: the file is not as described above.
    """
    if (datasets / f"{name}.toml").is_file():
        return read_dataset(name, datasets)
    match = DATASET_WITH_LENGTH.fullmatch(name)
    if not match or not (datasets / f"{match['name']}.toml").is_file():
        return None
    documents = read_toml(datasets / f"{match['name']}.toml").get("documents")
    if documents is None:
        return None
    config = read_dataset(match["name"], datasets)
    return replace(
        config,
        name=name,
        train=config.train
        | parse_flag_setting(documents, "train", config.path)
        | {"--document-length": [match["length"]]},
        generate=config.generate | parse_flag_setting(documents, "generate", config.path),
        starts_from=documents.get("starts_from", ""),
    )


def require_dataset(name: str, datasets: Path) -> DatasetConfig:
    """Read a dataset's file; raise UserError, with the names that are known, if there is none."""
    config = load_dataset(name, datasets)
    if config is None:
        raise UserError(f"no dataset '{name}' in {datasets}; known: {', '.join(dataset_names(datasets))}")
    return config


def dataset_names(datasets: Path) -> list[str]:
    """Return the names of the datasets in a folder, NAME_N for those whose documents can be limited to N tokens."""
    names = []
    for path in sorted(datasets.glob("*.toml")):
        names += [path.stem, f"{path.stem}_N"] if "documents" in read_toml(path) else [path.stem]
    return names


def read_dataset(name: str, datasets: Path, derived: tuple[str, ...] = ()) -> DatasetConfig:
    """Read a file without its [documents]; `derived` are the datasets that are based on it."""
    path = datasets / f"{name}.toml"
    settings = read_toml(path)
    base = DatasetConfig(path, name, Path())
    if base_name := settings.get("base"):
        if base_name in (name, *derived) or not (datasets / f"{base_name}.toml").is_file():
            raise UserError(f"{path}: base = {base_name!r} is not another dataset in {datasets}")
        base = read_dataset(base_name, datasets, (name, *derived))
    return DatasetConfig(
        path=path,
        name=name,
        data_bin=Path("data-bin") / settings.get("data_bin", name),
        train=base.train | parse_flag_setting(settings, "train", path),
        generate=base.generate | parse_flag_setting(settings, "generate", path),
        average_checkpoints=settings.get("average_checkpoints", base.average_checkpoints),
        starts_from=settings.get("starts_from", ""),
    )


def parse_flag_setting(settings: Mapping[str, Any], command: str, path: Path) -> Flags:
    """Parse the flags of fairseq-`command` in a file's settings."""
    return parse_flag_lines(settings.get(command, ""), f"{path}:{command}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a dataset's file and check its keys; raise UserError if it is not as described above."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not a TOML file: {error}") from None
    documents = settings.get("documents", {})
    if not isinstance(documents, dict):
        raise UserError(f"{path}: documents must be a section, [documents]")
    for known, given in ((tuple(KEY_TYPES), settings), (DOCUMENT_KEYS, documents)):
        for key, value in given.items():
            if key not in known:
                raise UserError(f"{path}: unknown key '{key}'; known: {', '.join(known)}")
            if type(value) is not KEY_TYPES[key]:
                raise UserError(f"{path}: {key} must be of type {KEY_TYPES[key].__name__}, not {value!r}")
    return settings
