"""The files with the hypotheses and references that a score was computed on, in a run's folder."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from relumt.errors import UserError
from relumt.files import changed_files
from relumt.runs.evaluation_record import Evaluation
from relumt.text_files import load_text


def scored_file_names(stem: str) -> dict[str, tuple[str, str]]:
    """Return the names of the files of hypotheses and references, by the metric that is computed on them."""
    ends = {"bleu_tokenized": ".tok", "bleu_detokenized": ""}
    return {metric: (f"{stem}.hyp{end}", f"{stem}.ref{end}") for metric, end in ends.items()}


def hash_files(files: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the SHA-256 of each file that `write_lines` would write, by its name."""
    return {
        name: hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
        for name, lines in files.items()
    }


def load_scored_lines(folder: Path, evaluation: Evaluation, metric: str) -> tuple[list[str], list[str]]:
    """Return the hypotheses and references that a score was computed on.

    Args:
        folder: the folder of the evaluation's files.
        evaluation: the evaluation.
        metric: key of `evaluation.scored_files`.

    Raises:
        UserError: a file is missing or is not the one that was scored, or their numbers of lines differ.
    """
    names = evaluation.scored_files[metric]
    hypotheses, references = (load_text(folder / name) for name in names)
    recorded = {name: evaluation.files_sha256[name] for name in names if name in evaluation.files_sha256}
    if changed := changed_files(folder, recorded):
        raise UserError(f"{folder / changed[0]}: is not the file that was scored; translate again")
    if len(hypotheses) != len(references):
        raise UserError(
            f"{folder / names[0]} has {len(hypotheses)} lines, {names[1]} has {len(references)}; translate again"
        )
    return hypotheses, references
