"""Where the initial weights of a run come from: they are new, or from the same model and seed trained elsewhere.

`starts_from` in the dataset's file names the dataset that is trained on first; its run is in the same RUNS folder.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError, quote
from relumt.files import file_sha256
from relumt.runs.checkpoint_identity import refuse_foreign_checkpoint
from relumt.runs.dataset_config import load_dataset
from relumt.runs.flags import MECHANISM_FLAGS, join_flag_values
from relumt.runs.provenance import format_flag
from relumt.runs.record import Initialization, RunRecord, find_record
from relumt.runs.run_checkpoints import best_checkpoint, has_checkpoints
from relumt.runs.run_config import RunConfig, resolve_run_config

WEIGHT_FLAGS = re.compile(rf"--(arch|share-.*|activation-fn|(encoder|decoder)-(?!layerdrop).*|{MECHANISM_FLAGS})")
"""Flags that decide what the weights are or what is computed with them."""


@dataclass(frozen=True)
class PretrainedRun:
    """The run that provides the initial weights.

    Attributes:
        dataset: what it was trained on.
        record: its record; None if its folder was deleted since.
        folder: the run's folder.
    """

    dataset: str
    record: RunRecord | None
    folder: Path

    @property
    def diverged(self) -> bool:
        """Whether it diverged and therefore provides no weights."""
        return self.record is not None and self.record.divergence is not None

    @property
    def _is_trained(self) -> bool:
        return self.record is not None and self.record.training is not None

    def describe(self) -> Initialization:
        """Describe the initial weights for the provenance of the run that starts from them."""
        usable = self._is_trained and not self.diverged and has_checkpoints(self.folder)
        sha256 = file_sha256(best_checkpoint(self.folder)) if usable else ""
        if self.record is None:
            return Initialization(self.dataset, sha256, self.diverged)
        provenance = self.record.provenance
        flags = {name: value for name, value in provenance.flags.items() if name != "--seed"}
        return Initialization(self.dataset, sha256, self.diverged, flags, provenance.data)

    def train_flags(self) -> list[str]:
        """Return fairseq-train's flags that load the best checkpoint.

        They are for a run without a checkpoint of its own; otherwise fairseq resumes from its own checkpoint.

        Raises:
            UserError: training is not finished, or there is no checkpoint, or it contains code or is not of that run.
        """
        from relumt.checkpoints.loading import load_checkpoint_safely  # imports PyTorch, which takes seconds

        if self.record is None or self.record.training is None:
            raise UserError(f"{self.folder}: training is not finished, but another run is to start from its weights")
        checkpoint = best_checkpoint(self.folder)
        refuse_foreign_checkpoint(checkpoint, load_checkpoint_safely(checkpoint), self.record)
        return ["--finetune-from-model", str(checkpoint)]


def find_pretrained_run(config: RunConfig) -> PretrainedRun | None:
    """Return the run that provides the initial weights, None for new weights."""
    dataset = config.dataset_config.starts_from
    if not dataset:
        return None
    folder = config.folder.parents[2] / dataset / config.model / str(config.seed)
    return PretrainedRun(dataset, find_record(folder), folder)


def resolve_pretraining(config: RunConfig, data_bin: Path | None, extra_flags: list[str]) -> RunConfig | None:
    """Return the run that has to be trained before this one, None if this one starts from new weights.

    Args:
        config: this run.
        data_bin: the data-bin, if the user named one.
        extra_flags: fairseq-train's flags of this run beyond those of configs/.

    Raises:
        UserError: `starts_from` names no dataset, or one that starts from this one, or one with a different vocabulary
            or model.
    """
    chain = [config]
    datasets = config.dataset_config.path.parent
    while name := chain[-1].dataset_config.starts_from:
        path = chain[-1].dataset_config.path
        if load_dataset(name, datasets) is None:
            raise UserError(f"{path}: starts_from = {quote(name)} is not a dataset in {datasets}; name one of those")
        if name in [other.dataset for other in chain]:
            raise UserError(
                f"{path}: starts_from = '{name}', which starts from this dataset; delete one of the two settings"
            )
        chain.append(
            resolve_run_config(name, config.model, config.seed, datasets.parent, config.folder.parents[2], data_bin)
        )
    if len(chain) == 1:
        return None
    pretraining = chain[1]
    require_shared_vocabulary(config, pretraining, data_bin)
    require_same_model(config, pretraining, extra_flags)
    return pretraining


def require_shared_vocabulary(config: RunConfig, pretraining: RunConfig, data_bin: Path | None) -> None:
    """Raise UserError if the vocabularies differ, or if the user named one data-bin for two datasets."""
    other = pretraining.dataset_config.data_bin
    if data_bin and config.dataset_config.data_bin != other:
        raise UserError(
            f"DATA_BIN is the data-bin of {config.dataset}, but training starts from {pretraining.dataset}, whose "
            f"data-bin is {other}; unset DATA_BIN"
        )
    vocabularies = [list(run.data_bin.dictionaries().items()) for run in (config, pretraining)]  # source first
    if vocabularies[0] != vocabularies[1]:
        raise UserError(
            f"{config.data_bin.folder} and {pretraining.data_bin.folder}, on which its training starts, differ in "
            "vocabulary or direction; let starts_from name a dataset with the same dictionaries"
        )


def require_same_model(config: RunConfig, pretraining: RunConfig, extra_flags: list[str]) -> None:
    """Raise UserError if the two models would not compute the same function with the same weights."""
    ours, theirs = join_flag_values(config.train_flags(extra_flags)), join_flag_values(pretraining.train_flags([]))
    differences = [
        f"{format_flag(ours, name)} ({format_flag(theirs, name)})"
        for name in dict.fromkeys([*ours, *theirs])
        if WEIGHT_FLAGS.fullmatch(name) and ours.get(name) != theirs.get(name)
    ]
    if differences:
        raise UserError(
            f"{config.folder} starts from the weights of {pretraining.folder}, but its model differs: "
            f"{'; '.join(differences)}; set these flags in a file of configs/models, which both runs read"
        )
