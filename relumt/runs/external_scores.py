"""Score a translated subset with another program, such as a neural metric, and record the result in run.json."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from relumt.errors import UserError, quote
from relumt.files import file_sha256, write_text_atomically
from relumt.runs.data_bin import open_data_bin
from relumt.runs.evaluation_record import Evaluation, ExternalScore
from relumt.runs.launch import locked
from relumt.runs.metric_command import score_with_command
from relumt.runs.record import RUN_RECORD, RunRecord, load_record, save_record
from relumt.runs.scored_segments import Segment, load_segments
from relumt.text_files import load_text

METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)

SACREBLEU_METRICS = ("bleu", "chrf", "ter")

SCORE_AGAIN = "score it again with relumt score"


def require_metric_name(name: str, evaluation: Evaluation) -> None:
    """Raise UserError unless `name` can be the name of an external metric."""
    if not METRIC_NAME.fullmatch(name):
        raise UserError(f"--name {quote(name)}: expected a letter and up to 39 letters, digits, '-' and '_'")
    if name.lower() in {*SACREBLEU_METRICS, *evaluation.scores}:
        raise UserError(f"--name {name}: is the name of a score of sacreBLEU; choose another one")


def require_evaluation(run: Path, record: RunRecord, subset: str) -> Evaluation:
    """Return the evaluation of a subset; raises UserError if it is not translated and scored."""
    evaluation = record.evaluations.get(subset)
    if evaluation is None:
        raise UserError(f"{run}: '{subset}' is not translated and scored; run scripts/evaluate.sh")
    return evaluation


def segments_of_run(run: Path, subset: str, data: Path | None) -> list[Segment]:
    """Return the segments of a scored subset; `data` is the data-bin, None for the one that the run names.

    Raises:
        UserError: the subset is not scored, or a file is missing or has changed.
    """
    record = load_record(run)
    evaluation = require_evaluation(run, record, subset)
    return load_segments(run, evaluation, open_data_bin(data or Path(record.data_bin)))


def add_external_score(
    run: Path, subset: str, data: Path | None, name: str, command: str, time_limit: int
) -> ExternalScore:
    """Score a subset with a program; write the scores of the segments to a file, and the subset's score to run.json.

    Args:
        run, subset, data: as for `segments_of_run`.
        name: name of the metric; an earlier score of this name is replaced.
        command, time_limit: as for `score_with_command`.

    Raises:
        UserError: an argument is not valid, or another process is working on the run; nothing was started.
        AttemptFailedError: the program failed; nothing was written.
    """
    require_metric_name(name, require_evaluation(run, load_record(run), subset))
    with locked(run):
        segments = segments_of_run(run, subset, data)
        output = score_with_command(command, segments, time_limit)
        path = run / f"{subset}.{name}.scores"
        write_text_atomically(path, "".join(f"{score!r}\n" for score in output.segment_scores))
        sources = sha256("\n".join(segment.source for segment in segments).encode()).hexdigest()
        added = ExternalScore(output.score, command, output.version, path.name, file_sha256(path), sources)
        record = load_record(run)
        evaluation = require_evaluation(run, record, subset)
        evaluation = replace(evaluation, external=evaluation.external | {name: added})
        save_record(run, replace(record, evaluations=record.evaluations | {subset: evaluation}))
        return added


def load_segment_scores(run: Path, score: ExternalScore) -> list[str]:
    """Return the scores of the segments as they were written; raises UserError if the file is not that of `score`."""
    path = run / score.segments
    lines = load_text(path)
    if file_sha256(path) != score.segments_sha256:
        raise UserError(f"{path}: is not the file that {RUN_RECORD} describes; {SCORE_AGAIN}")
    return lines
