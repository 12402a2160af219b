"""Datasets and models: the flags that configs/datasets/NAME.toml and configs/models.toml hold.

A dataset's file has these keys, all optional:

    base = "NAME"              take the flags, average_checkpoints and length_penalties of another dataset; those given
                               here replace them
    data_bin = "NAME"          the data is in data-bin/NAME (default: the file's own name)
    train = '''…'''            flags of fairseq-train
    generate = '''…'''         flags of fairseq-generate
    average_checkpoints = 5    translate with the average of the last 5 checkpoints (default: with the best one);
                               training then keeps those of the last 5 epochs, unless --save-interval-updates is given
    length_penalties = [0.6, 1.0, 1.4]
                               choose --lenpen from these values on the validation set (default: []); a --lenpen in
                               `generate` or on the command line is taken instead
    starts_from = "DATASET"    train the same model on that dataset first, and start from its weights

    [documents]                train, generate and starts_from of NAME_N, which has documents of at most N tokens

Each section of models.toml has one key, `train`.
"""

import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

import relumt
from relumt.errors import UserError, quote
from relumt.runs.flags import Flags, is_name, list_known, parse_flag_lines, require_name

PACKAGED_CONFIGS = Path(relumt.__file__).resolve().parent / "configs"

CONFIGS_HELP = "folder with datasets/ and models.toml (default: CONFIGS, else configs, else the one in the package)"

LENPEN = "--lenpen"

LengthPenalty = Annotated[float, Meta(ge=-10, le=10)]
"""A power of the length; higher ones leave the range of fp32."""

DATASET_WITH_LENGTH = re.compile(r"(?P<name>.+)_(?P<length>[1-9]\d{0,8})", re.ASCII)


class DocumentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section [documents] of a dataset's file."""

    train: str = ""
    generate: str = ""
    starts_from: str = ""


class DatasetSettings(DocumentSettings, frozen=True, forbid_unknown_fields=True):
    """A dataset's file."""

    base: str = ""
    data_bin: str = ""
    average_checkpoints: Annotated[int, Meta(ge=0, le=1000)] | None = None
    length_penalties: tuple[LengthPenalty, ...] | None = None
    documents: DocumentSettings | None = None


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of models.toml: flags of fairseq-train, in lines as in a shell."""

    train: str


@dataclass(frozen=True)
class DatasetConfig:
    """How to train and translate on a dataset.

    Attributes:
        path: its file.
        name: what the user calls it; with the length limit of its documents if it has one.
        data_bin: where its data-bin is unless the user says otherwise.
        train, generate: flags of fairseq-train and fairseq-generate.
        average_checkpoints: number of last checkpoints whose average translates; 0 to use the best checkpoint.
        length_penalties: values of --lenpen to choose from on the validation set.
        starts_from: dataset on which the same model is trained first, "" for none.
    """

    path: Path
    name: str
    data_bin: Path
    train: Flags = field(default_factory=dict)
    generate: Flags = field(default_factory=dict)
    average_checkpoints: int = 0
    length_penalties: tuple[float, ...] = ()
    starts_from: str = ""

    def penalties_to_compare(self, flags: Flags) -> tuple[float, ...]:
        """Return the values of --lenpen to choose from; none if `flags` of fairseq-generate have one."""
        return () if LENPEN in flags else self.length_penalties

    def how_to_make(self, data_bin: Path) -> str:
        """Return the command that makes `data_bin`: that of its corpus, or the one for any parallel corpus."""
        script = self.path.parents[2] / "data_prep" / f"{data_bin.name}.sh"
        if script.is_file():
            return f"data_prep/{script.name}"
        from relumt.corpora.published_corpora import CORPORA  # here, because only this message needs it

        if data_bin.name in CORPORA:
            return f"relumt corpus {data_bin.name}"
        return f"relumt prepare … --out {data_bin} (see the comment in {self.path})"


def load_dataset(name: str, datasets: Path) -> DatasetConfig | None:
    """Read a dataset's file in the folder `datasets`; return None if there is none, or `name` is a path.

    The name of a dataset with documents may end in their length limit: europarl7_en_de_512.

    Raises:
        UserError: the file is not as described above.
    """
    if not is_name(name):
        return None
    stem, documents, length = name, None, ""
    if not (datasets / f"{name}.toml").is_file():
        match = DATASET_WITH_LENGTH.fullmatch(name)
        if not match or not (datasets / f"{match['name']}.toml").is_file():
            return None
        stem, length = match.groups()
        documents = read_settings(datasets / f"{stem}.toml").documents
        if documents is None:
            return None
    config = read_dataset(stem, datasets)
    config = replace(config, train=keep_numbered_checkpoints(config.train, config.average_checkpoints))
    if documents is None:
        return config
    train, generate = (
        parse_flag_lines(lines, f"{config.path}:{key}")
        for key, lines in (("train", documents.train), ("generate", documents.generate))
    )
    return replace(
        config,
        name=name,
        train=config.train | train | {"--document-length": [length]},
        generate=config.generate | generate,
        starts_from=documents.starts_from,
    )


def configs_folder(root: Path) -> Path:
    """Return the folder with datasets/ and models.toml: $CONFIGS, else `root`/configs, else that of the package."""
    if configs := os.environ.get("CONFIGS"):
        return Path(configs)
    return root / "configs" if (root / "configs" / "models.toml").is_file() else PACKAGED_CONFIGS


def require_dataset(name: str, datasets: Path) -> DatasetConfig:
    """Read a dataset's file; raise UserError, with the names that are known, if there is none."""
    config = load_dataset(name, datasets)
    if config is None:
        data_bin = Path("data-bin", name)
        advice = f"for the data-bin, give {data_bin}; " if data_bin.is_dir() else ""
        raise UserError(f"no dataset {quote(name)} in {datasets}; {advice}{list_known(name, dataset_names(datasets))}")
    return config


def dataset_names(datasets: Path) -> list[str]:
    """Return the names of the datasets in a folder, NAME_N for those whose documents can be limited to N tokens."""
    names = []
    for path in filter(Path.is_file, sorted(datasets.glob("*.toml"))):
        names += [path.stem, f"{path.stem}_N"] if read_settings(path).documents else [path.stem]
    return names


def read_dataset(name: str, datasets: Path, derived: tuple[str, ...] = ()) -> DatasetConfig:
    """Return what a file says with its bases, without [documents]; `derived` are the datasets that are based on it."""
    path = datasets / f"{name}.toml"
    settings = read_settings(path)
    base = DatasetConfig(path, name, Path())
    if settings.base:
        is_file = is_name(settings.base) and (datasets / f"{settings.base}.toml").is_file()
        if not is_file or settings.base in (name, *derived):
            raise UserError(f"{path}: base = {quote(settings.base)} is not another dataset in {datasets}; correct it")
        base = read_dataset(settings.base, datasets, (name, *derived))
    data_bin = settings.data_bin or name
    require_name(data_bin, f"{path}: data_bin")
    generate = parse_flag_lines(settings.generate, f"{path}:generate")
    average = base.average_checkpoints if settings.average_checkpoints is None else settings.average_checkpoints
    penalties = settings.length_penalties
    # Values to choose from replace a --lenpen of the base.
    inherited = {flag: values for flag, values in base.generate.items() if not (penalties and flag == LENPEN)}
    return DatasetConfig(
        path=path,
        name=name,
        data_bin=Path("data-bin") / data_bin,
        train=base.train | parse_flag_lines(settings.train, f"{path}:train"),
        generate=inherited | generate,
        average_checkpoints=average,
        length_penalties=base.length_penalties if penalties is None else tuple(dict.fromkeys(penalties)),
        starts_from=settings.starts_from,
    )


def keep_numbered_checkpoints(train: Flags, count: int) -> Flags:
    """Return the flags of fairseq-train so that training leaves the last `count` checkpoints to average.

    Flags that save checkpoints by updates stay as they are; otherwise those of the last epochs are kept.
    """
    if not count or "--save-interval-updates" in train:
        return train
    kept = {name: values for name, values in train.items() if name != "--no-epoch-checkpoints"}
    return {"--keep-last-epochs": [str(count)]} | kept


def require_numbered_checkpoints(train: Flags, count: int) -> None:
    """Raise UserError if training with these flags does not keep `count` checkpoints to average, however long it is."""
    by_updates = train.get("--save-interval-updates", ["0"]) != ["0"]
    keep = "--keep-interval-updates" if by_updates else "--keep-last-epochs"
    kept, problem = " ".join(train.get(keep, [])), ""
    if not by_updates and "--no-epoch-checkpoints" in train:
        problem = "--no-epoch-checkpoints saves none; drop it, or give --save-interval-updates"
    elif kept.isdecimal() and int(kept) < count:
        problem = f"{keep} keeps {kept}; give {keep} {count}"
    if count and problem:
        raise UserError(f"the dataset's average_checkpoints = {count} needs {count} numbered checkpoints: {problem}")


Settings = TypeVar("Settings")


def read_toml(path: Path, schema: type[Settings], known: str) -> Settings:
    """Read a TOML file; raise UserError, with what is `known`, if it is missing or does not have this schema."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: invalid UTF-8 or TOML, or a number too long
        raise UserError(f"{path}: not a TOML file ({error}); correct it") from None
    try:
        return msgspec.convert(settings, schema)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}; {known}") from None


def read_settings(path: Path) -> DatasetSettings:
    """Read a dataset's file; raise UserError if it is not as described above."""
    known, documents = (", ".join(kind.__struct_fields__) for kind in (DatasetSettings, DocumentSettings))
    return read_toml(path, DatasetSettings, f"known keys: {known}; in [documents]: {documents}")


def read_models(configs: Path) -> dict[str, str]:
    """Return the lines of flags of each model in the folder `configs`; raise UserError if models.toml is not valid."""
    models = read_toml(configs / "models.toml", dict[str, ModelSettings], "each section has `train`")
    return {name: settings.train for name, settings in models.items()}


def require_model(name: str, configs: Path) -> Flags:
    """Return the flags of a model; raise UserError, with the names that are known, if there is none."""
    models = read_models(configs)
    if name not in models:
        raise UserError(f"no model {quote(name)} in {configs / 'models.toml'}; {list_known(name, models)}")
    return parse_flag_lines(models[name], f"{configs / 'models.toml'}:{name}")
