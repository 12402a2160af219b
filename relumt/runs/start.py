"""Where a training starts: from new weights, or from those of the same model and seed on another dataset.

That dataset is what the file `start` in a dataset's folder names; its run is in the same RUNS.
"""

from dataclasses import dataclass
from pathlib import Path

from relumt.checkpoints import load_vetted
from relumt.errors import UserError
from relumt.files import sha256
from relumt.runs.evaluation import best_checkpoint, has_checkpoints
from relumt.runs.plan import Plan
from relumt.runs.record import load_record


@dataclass(frozen=True)
class Start:
    """What a training starts from.

    Attributes:
        dataset: where it was trained.
        run: that run's folder.
        diverged: whether it did, so that there is nothing to start from.
    """

    dataset: str
    run: Path
    diverged: bool

    def fingerprint(self) -> dict[str, str]:
        """What of it makes two runs the same run: the best checkpoint, or where all were deleted the dataset alone."""
        if not has_checkpoints(self.run):
            return {"dataset": self.dataset}
        return {"dataset": self.dataset, "sha256": sha256(best_checkpoint(self.run))}

    def flags(self) -> list[str]:
        """fairseq-train's, for a run without a checkpoint of its own; from that fairseq would resume.

        Raises:
            UserError: there is no checkpoint, or it carries code.
        """
        checkpoint = best_checkpoint(self.run)
        load_vetted(checkpoint)
        return ["--finetune-from-model", str(checkpoint)]


def start_of(plan: Plan) -> Start | None:
    """What a run starts from, None for new weights.

    Raises:
        UserError: that run has not been trained to its end.
    """
    if not plan.starts_from:
        return None
    folder = plan.folder.parents[2] / plan.starts_from / plan.model / str(plan.seed)
    record = load_record(folder) or {}
    if not {"diverged", "training"} & set(record):
        make = f"scripts/train.sh {plan.starts_from} {plan.model}"
        raise UserError(f"{folder}: not trained to the end, and {plan.dataset} starts from it; run {make}")
    return Start(plan.starts_from, folder, diverged="diverged" in record)
