"""The configuration of a run: DATASET and MODEL looked up in configs/, the data-bin, fairseq's flags, the folder.

Also which checkpoint in a run's folder translates.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError, quote
from relumt.files import encode_json, file_sha256, read_json, write_text_atomically
from relumt.plugin.checkpoints.folder import (
    BEST_CHECKPOINT,
    LAST_CHECKPOINT,
    is_intact,
    last_checkpoints,
    numbered_checkpoints,
    training_checkpoints,
)
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.dataset_config import DatasetConfig, load_dataset, require_dataset, require_model
from relumt.runs.environment import Device
from relumt.runs.flags import Flags, command_line, parse_flags, require_name, require_path
from relumt.runs.record import CHECKPOINTS, find_record

PREFERRED_CHECKPOINTS = (BEST_CHECKPOINT, LAST_CHECKPOINT)
"""Checkpoints of a training, in order of preference; without validation there is no best."""

AVERAGE = re.compile(r"checkpoint_average_(\d+)\.pt")
"""Name of an average, and how many checkpoints are averaged."""

PRECISION_ADVICE = (
    "set PRECISION (fp32, bf16, fp16) for training; evaluate.sh translates in fp32, or on a CPU with --bf16 in bf16"
)

LANGUAGE_ADVICE = "languages are those of the data-bin; prepare another one for the other direction"
INITIAL_WEIGHTS_ADVICE = "set starts_from in the file of the dataset instead, which run.json records"

RESERVED_FLAGS = {
    "--seed": "set SEED instead",
    "--save-dir": "set RUNS instead",
    "--tensorboard-logdir": "set RUNS instead",
    "--path": "it is the run's best checkpoint, or the average that `average_checkpoints` of the dataset asks for",
    "--results-path": "set RUNS instead",
    "--user-dir": "it is relumt's package",
    "--source-lang": LANGUAGE_ADVICE,
    "--target-lang": LANGUAGE_ADVICE,
    "-s": LANGUAGE_ADVICE,
    "-t": LANGUAGE_ADVICE,
    "--restore-file": INITIAL_WEIGHTS_ADVICE,
    "--finetune-from-model": INITIAL_WEIGHTS_ADVICE,
    "--log-format": "run.json is read from the JSON log",
    "--log-file": "the log is train.log in the run's folder",
    "--cpu": "hide the GPU with CUDA_VISIBLE_DEVICES= instead",
    "--fp16": PRECISION_ADVICE,
    "--bf16": PRECISION_ADVICE,
    "--cpu-bf16": PRECISION_ADVICE,
    "--amp": PRECISION_ADVICE,
    "--memory-efficient-fp16": PRECISION_ADVICE,
    "--memory-efficient-bf16": PRECISION_ADVICE,
}
"""Flags that the scripts set themselves → what a user who gives them should do instead."""

MAX_POSITIONS = ("--max-source-positions", "--max-target-positions")

FAIRSEQ_POSITIONS = "1024"
"""fairseq's default of both."""

INPUT_FLAGS = ("--task", "--document-length", "--document-separator", *MAX_POSITIONS)
"""Flags of training that decide what a model reads; translation has to use the same."""

TRUNCATE = "--truncate-source"
"""Switch of training that lets a model read the beginnings of sentences that exceed --max-source-positions."""

RESUMABLE = {"--update-epoch-batch-itr": ["True"]}
"""By default fairseq shuffles with the seed plus the epoch in which it started, so a resumed run would train on
different batches. With this flag it shuffles again in every epoch, resumed or not."""

POST_PROCESS = {"subword-nmt": "subword_nmt", "sentencepiece": "sentencepiece"}
"""Kind of subwords → fairseq's name for joining them."""


@dataclass(frozen=True)
class RunConfig:
    """The configuration of one run: a model on a dataset with a seed.

    Attributes:
        dataset_argument: the dataset as the user gave it, a name or the path of a data-bin.
        dataset, model, seed: the run's name.
        data_bin: the data.
        dataset_config: the settings of the dataset.
        model_flags: flags of fairseq-train that define the model.
        folder: the run's folder, which contains everything that the run writes.
    """

    dataset_argument: str
    dataset: str
    model: str
    seed: int
    data_bin: DataBin
    dataset_config: DatasetConfig
    model_flags: Flags
    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / CHECKPOINTS

    @property
    def recorded_data_bin(self) -> str:
        """The path of the data-bin in run.json, relative to the run's folder so that both can be moved together."""
        data_bin = self.data_bin.folder
        return str(data_bin if data_bin.is_absolute() else os.path.relpath(data_bin.resolve(), self.folder.resolve()))

    def train_flags(self, extra: list[str]) -> Flags:
        """Return fairseq-train's flags: the dataset's, overridden by the model's, overridden by `extra`.

        Raises:
            UserError: a flag is one that the scripts set.
        """
        flags = self.dataset_config.train | self.model_flags
        return RESUMABLE | _override(flags, extra, RESERVED_FLAGS) | {"--seed": [str(self.seed)]}

    def generate_flags(self, extra: list[str], trained: Mapping[str, str]) -> Flags:
        """Return fairseq-generate's flags: how to read the data, overridden by the dataset's, overridden by `extra`.

        fairseq-generate takes neither the task nor the maximum lengths from the checkpoint, so they come from
        `trained`, the flags of training. It skips a last batch whose size is not a multiple of 8 unless told otherwise.

        Raises:
            UserError: a flag is one that the scripts set.
        """
        flags = {name: [trained[name]] for name in INPUT_FLAGS if name in trained}
        flags |= {TRUNCATE: []} if TRUNCATE in trained else {}
        flags |= {"--required-batch-size-multiple": ["1"]}
        if self.data_bin.bpe in POST_PROCESS:
            flags["--post-process"] = [POST_PROCESS[self.data_bin.bpe]]
        reserved = {name: advice for name, advice in RESERVED_FLAGS.items() if name != "--bf16"}
        return flags | _override(self.dataset_config.generate, extra, reserved)

    def train_command(self, flags: Flags, device: Device) -> list[str]:
        """Return the arguments of fairseq-train."""
        outputs = {"--save-dir": [str(self.checkpoints)], "--tensorboard-logdir": [str(self.folder / "tensorboard")]}
        return self._command(flags | outputs | {"--log-format": ["json"]}) + device.train_flags()

    def generate_command(self, flags: Flags, checkpoint: Path, folder: Path, device: Device) -> list[str]:
        """Return the arguments of fairseq-generate, which writes to `folder`."""
        files = {"--path": [str(checkpoint)], "--results-path": [str(folder)], "--log-format": ["json"]}
        return self._command(flags | files) + device.generate_flags()

    def _command(self, flags: Flags) -> list[str]:
        package = Path(__file__).resolve().parents[1]
        data = [str(self.data_bin.folder), "--source-lang", self.data_bin.source]
        return [*data, "--target-lang", self.data_bin.target, "--user-dir", str(package), *command_line(flags)]


def _override(flags: Flags, extra: list[str], reserved: Mapping[str, str]) -> Flags:
    """Add the flags of the command line; raises UserError if any flag is reserved."""
    flags = flags | parse_flags(extra, "command line")
    for name, advice in reserved.items():
        if name in flags:
            raise UserError(f"{name} is set by the scripts; {advice}")
    return flags


def resolve_run_config(
    dataset: str, model: str, seed: int, configs: Path, runs: Path, data_bin: Path | None
) -> RunConfig:
    """Look up a dataset and a model by name.

    Args:
        dataset: a name in configs/datasets, or the path of a data-bin, which then uses the settings of `default`.
        model: a section of configs/models.toml.
        seed: random seed.
        configs: folder with datasets/ and models.toml.
        runs: folder of all runs.
        data_bin: the data-bin, if it is not the dataset's own.

    Raises:
        UserError: a name is unknown (the message lists the known ones) or cannot be part of a path, there is no
            data-bin, or `runs` is inside it.
    """
    require_path(runs, "RUNS")
    model_flags = require_model(model, configs)
    require_name(model, "model")
    datasets = configs / "datasets"
    name, dataset_config = dataset, load_dataset(dataset, datasets)
    if dataset_config is None and dataset and Path(dataset).is_dir():
        dataset_config, data_bin = require_dataset("default", datasets), data_bin or Path(dataset)
        name = Path(dataset).resolve().name
    elif "/" in dataset:
        raise UserError(f"{quote(dataset)}: no such data-bin; make it with relumt prepare … --out DATA-BIN")
    dataset_config = dataset_config or require_dataset(dataset, datasets)
    data = data_bin or dataset_config.data_bin
    if not data.is_dir():
        raise UserError(f"{data}: no data-bin for '{name}'; make it with {dataset_config.how_to_make(data)}")
    require_name(name, "dataset")
    if runs.resolve().is_relative_to(data.resolve()):
        raise UserError(f"RUNS {runs} is inside the data-bin {data}, which can be replaced; choose another folder")
    return RunConfig(
        dataset, name, model, seed, open_data_bin(data), dataset_config, model_flags, runs / name / model / str(seed)
    )


def has_checkpoints(run: Path) -> bool:
    """Return whether a run's folder contains a checkpoint from which training can resume."""
    return bool(training_checkpoints(run / CHECKPOINTS))


def best_checkpoint(run: Path) -> Path:
    """Return the checkpoint with the best validation loss, or the last one if training had no validation.

    Raises:
        UserError: there is neither.
    """
    for name in PREFERRED_CHECKPOINTS:
        if (path := run / CHECKPOINTS / name).is_file():
            return path
    raise UserError(f"{run / CHECKPOINTS}: no checkpoint; delete {run} and train again")


def find_checkpoint(checkpoint_or_run: Path) -> Path:
    """Return a checkpoint as it is, or for a run's folder the checkpoint that was scored on the test set, else on
    another subset; for a run without scores the best one.

    Raises:
        UserError: there is no such file.
    """
    candidates = [checkpoint_or_run]
    if checkpoint_or_run.is_dir():
        record = find_record(checkpoint_or_run)
        scored = [evaluation.setup.checkpoint for evaluation in record.ordered_evaluations[:1]] if record else []
        candidates = [checkpoint_or_run / CHECKPOINTS / name for name in scored or PREFERRED_CHECKPOINTS]
    for path in candidates:
        if path.is_file():
            return path
    advice = "give a checkpoint_*.pt or the folder of a trained run, RUNS/DATASET/MODEL/SEED"
    raise UserError(f"{candidates[0]}: no such checkpoint; {advice}")


def num_averaged(checkpoint: str) -> int:
    """Return how many checkpoints the file named `checkpoint` is the average of; 0 if it is no average."""
    match = AVERAGE.fullmatch(checkpoint)
    return int(match[1]) if match else 0


def averaged_checkpoint(run: Path, count: int) -> Path:
    """Return the average of the last `count` checkpoints, writing it if it is missing, damaged or of other checkpoints.

    The file beside it, checkpoint_average_COUNT.json, has the SHA-256 of those that were averaged. Afterwards the
    numbered checkpoints may be deleted to save space.

    Raises:
        UserError: there are fewer checkpoints, or they cannot be averaged.
    """
    folder = run / CHECKPOINTS
    averaged = folder / f"checkpoint_average_{count}.pt"
    record, recorded = averaged.with_suffix(".json"), {}
    with suppress(FileNotFoundError, UserError):  # damaged: the average is written again
        recorded = read_json(record, dict[str, str], "evaluate again")
    is_usable = averaged.is_file() and is_intact(averaged)
    if is_usable and all(recorded.get(path.name) == file_sha256(path) for path in numbered_checkpoints(folder)):
        return averaged  # some or all of those that were averaged may have been deleted
    last = last_checkpoints(folder, count)
    checksums = {path.name: file_sha256(path) for path in last}
    if not is_usable or recorded != checksums:
        from relumt.plugin.checkpoints.averaging import write_average  # imports PyTorch, which takes seconds

        record.unlink(missing_ok=True)
        write_average(last, averaged)
        write_text_atomically(record, encode_json(checksums))
    return averaged
