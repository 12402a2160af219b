"""Where a training starts: from new weights, or from those of the same model and seed on another dataset.

That dataset is `starts_from` in the file of the dataset; its run is in the same RUNS.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from relumt.checkpoints import load_checkpoint_safely
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.dataset_config import load_dataset
from relumt.runs.evaluation import best_checkpoint
from relumt.runs.flags import OF_MECHANISMS, readable
from relumt.runs.provenance import as_typed
from relumt.runs.record import Record, load_record
from relumt.runs.run_config import Plan, has_checkpoints, plan_run

OF_WEIGHTS = re.compile(rf"--(arch|share-.*|activation-fn|(encoder|decoder)-(?!layerdrop).*|{OF_MECHANISMS})")
"""Flags that say what the weights are or what is computed with them."""


@dataclass(frozen=True)
class Start:
    """The run that a training starts from.

    Attributes:
        dataset: where it was trained.
        folder: the run's; it may have been deleted since.
    """

    dataset: str
    folder: Path

    @property
    def diverged(self) -> bool:
        """Whether it did, so that there is nothing to start from."""
        return "diverged" in self._record()

    def fingerprint(self) -> dict[str, str]:
        """What of it makes two runs the same run: the best checkpoint, or where all were deleted the dataset alone."""
        if self.diverged:
            return {"dataset": self.dataset, "diverged": "yes"}
        if "training" not in self._record() or not has_checkpoints(self.folder):
            return {"dataset": self.dataset}
        return {"dataset": self.dataset, "sha256": file_sha256(best_checkpoint(self.folder))}

    def flags(self) -> list[str]:
        """fairseq-train's, for a run without a checkpoint of its own; from that fairseq would resume.

        Raises:
            UserError: it was not trained to its end, has no checkpoint, or one that carries code.
        """
        if "training" not in self._record():
            raise UserError(f"{self.folder}: not trained to the end, and what starts from it needs that")
        checkpoint = best_checkpoint(self.folder)
        load_checkpoint_safely(checkpoint)
        return ["--finetune-from-model", str(checkpoint)]

    def _record(self) -> Record:
        return load_record(self.folder) or {}


def start_of(plan: Plan) -> Start | None:
    """What a run starts from, None for new weights."""
    dataset = plan.config.starts_from
    return Start(dataset, plan.folder.parents[2] / dataset / plan.model / str(plan.seed)) if dataset else None


def first_of(plan: Plan, data_bin: Path | None, flags: list[str]) -> Plan | None:
    """The run that has to be trained before this one, None if it starts from new weights.

    data_bin: where the data is, if that was said. flags: of fairseq-train for this run, beyond those of configs/.

    Raises:
        UserError: the start is no dataset of configs/, leads back to this one, or is of other data or another model.
    """
    every = [plan]
    datasets = plan.config.path.parent
    while name := every[-1].config.starts_from:
        path = every[-1].config.path
        if load_dataset(name, datasets) is None:
            raise UserError(f"{path}: starts_from = '{name}' is not a dataset in {datasets}; name one of those")
        if name in [one.dataset for one in every]:
            raise UserError(f"{path}: starts_from = '{name}', which starts from this one itself; delete one of them")
        every.append(plan_run(name, plan.model, plan.seed, datasets.parent, plan.folder.parents[2], data_bin))
    if len(every) == 1:
        return None
    first = every[1]
    require_shared_data(plan, first, data_bin)
    require_same_model(plan, first, flags)
    return first


def require_shared_data(plan: Plan, first: Plan, data_bin: Path | None) -> None:
    """Raise UserError where the two have other vocabularies, or the one data-bin that was given is not of both."""
    if data_bin and plan.config.data_bin != first.config.data_bin:
        raise UserError(
            f"DATA_BIN is the data-bin of {plan.dataset}, but training starts from {first.dataset}, whose data-bin is "
            f"{first.config.data_bin}; unset DATA_BIN"
        )
    if plan.data_bin.dictionaries() != first.data_bin.dictionaries():
        raise UserError(
            f"{plan.data_bin.folder} and {first.data_bin.folder}, where its training starts, differ in vocabulary; "
            "prepare one with the dictionaries of the other"
        )


def require_same_model(plan: Plan, first: Plan, flags: list[str]) -> None:
    """Raise UserError where the two would not compute the same with the same weights."""
    ours, theirs = (readable(flags) for flags in (plan.train_flags(flags), first.train_flags([])))
    differ = [
        f"{as_typed(ours, name)} ({as_typed(theirs, name)})"
        for name in dict.fromkeys([*ours, *theirs])
        if OF_WEIGHTS.fullmatch(name) and ours.get(name) != theirs.get(name)
    ]
    if differ:
        raise UserError(
            f"{plan.folder}: not the model of {first.folder}, from which it starts: {'; '.join(differ)}; "
            "give such flags in a file of configs/models, which both take"
        )
