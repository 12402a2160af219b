"""run.json, the record beside a run's checkpoints, and what may be added to it.

fingerprint   what the run is (relumt.runs.provenance)
given         flags of fairseq-train that were given at the last start, beyond those of configs/
mixed         one entry each time that somebody accepted a run in another environment: the differences
training      what fairseq-train's log says, once it has ended
diverged      where and why training ended instead, when no gradient was finite any more
evaluating    the translation that was begun and not scored yet: subset, flags, environment, checkpoint
evaluation    by subset: the same, and scores with their signatures
"""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relumt.atomic_output import atomic_file, write_text_atomically
from relumt.console import print_status
from relumt.errors import UserError
from relumt.runs.environment import Device, versions
from relumt.runs.provenance import Fingerprint, differences, refuse_other_vocabulary
from relumt.runs.run_config import Plan, has_checkpoints

Record = dict[str, Any]

RECORD = "run.json"


def load_record(folder: Path) -> Record | None:
    """The record in a run's folder, None if there is none; raises UserError if it cannot be read."""
    path = folder / RECORD
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path}: not a run's record ({error}); delete {folder} and train again") from None


def save_record(folder: Path, record: Record) -> None:
    """Write the record as a whole or not at all."""
    write_text_atomically(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def unfinished_record(plan: Plan) -> Record:
    """The record of a run whose training was begun; raises UserError if there is none."""
    record = load_record(plan.folder)
    if record is None:
        raise UserError(f"{plan.folder}: no {RECORD}; run scripts/train.sh {plan.given} {plan.model}")
    return record


def trained_record(plan: Plan) -> Record:
    """The record of a run that is trained to its end; raises UserError if there is none."""
    record = load_record(plan.folder)
    if record is None or "training" not in record:
        raise UserError(f"{plan.folder}: not trained to the end; run scripts/train.sh {plan.given} {plan.model}")
    return record


def new_record(plan: Plan, fingerprint: Fingerprint, device: Device) -> Record:
    """The record of a run that begins now."""
    return {
        "dataset": plan.dataset,
        "model": plan.model,
        "seed": plan.seed,
        "data_bin": str(plan.data_bin.folder),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(device),
        "versions": versions(),
        "fingerprint": fingerprint,
        "mixed": [],
    }


def open_for_training(plan: Plan, fingerprint: Fingerprint, device: Device, accept_mixed: bool) -> Record:
    """The record to train on: a new one, or that of the run that is there if it is the same run.

    Nothing is mixed where no checkpoint was left yet: then the record and its log begin anew, unless the run has ended,
    in scores or not, and its checkpoints were deleted since. With `accept_mixed` another fingerprint is let in, and
    `mixed` says so.

    Raises:
        UserError: checkpoints without a record, of another vocabulary or fingerprint, or that carry code.
    """
    record = load_record(plan.folder)
    if not has_checkpoints(plan.folder) and not {"training", "diverged"} & set(record or {}):
        (plan.folder / "train.log").unlink(missing_ok=True)
        return new_record(plan, fingerprint, device)
    if record is None:
        raise UserError(f"{plan.folder}: checkpoints without {RECORD}; delete the folder or set another RUNS")
    refuse_other_vocabulary(record["fingerprint"], plan.data_bin)
    changed = differences(record["fingerprint"], fingerprint)
    if changed:
        accept_or_refuse(plan, record, changed, accept_mixed)
        record |= {"fingerprint": fingerprint, "device": str(device), "versions": versions()}
        for outdated in ("training", "diverged", "evaluating", "evaluation"):
            record.pop(outdated, None)
    return record


def updates_so_far(plan: Plan) -> int:
    """Updates in the checkpoint from which fairseq would resume, 0 without one; raises UserError if it carries code.

    fairseq writes the first name of a checkpoint as a whole and copies it to the others: killed meanwhile, it leaves a
    last one that breaks off, or none. Then the newest of the others, which is the same, takes its place.
    """
    from relumt.checkpoints import UnreadableCheckpointError, load_checkpoint_safely

    last = plan.checkpoints / "checkpoint_last.pt"
    others = [path for path in plan.checkpoints.glob("checkpoint*.pt") if path != last and "average" not in path.name]
    checkpoint = None
    try:
        checkpoint = load_checkpoint_safely(last) if last.is_file() else None
    except UnreadableCheckpointError:
        if not others:
            raise
    if checkpoint is None:
        if not others:
            return 0
        newest = max(others, key=lambda path: path.stat().st_mtime)
        checkpoint = load_checkpoint_safely(newest)
        with atomic_file(last) as unfinished:
            shutil.copyfile(newest, unfinished)
        print_status(f"{last}: missing or broken off; going on from {newest.name}, of which it was to be a copy")
    return checkpoint["optimizer_history"][-1]["num_updates"]


def accept_or_refuse(plan: Plan, record: Record, changed: list[str], accept_mixed: bool) -> None:
    """Note what has changed in the record's `mixed`, or raise UserError that says what and what to do."""
    if not accept_mixed:
        raise UserError(
            f"{plan.folder} was made otherwise: {'; '.join(changed)}; set another RUNS or SEED, delete the folder, "
            "or set ACCEPT_MIXED=1 to go on and have it recorded"
        )
    when = datetime.now(UTC).isoformat(timespec="seconds")
    record["mixed"].append({"when": when, "was": changed})
