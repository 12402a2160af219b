"""Scores a translated subset with another program, such as a neural metric, and records the result in run.json.

The program reads one JSON object per line: {"source": …, "translation": …, "reference": …}. It prints one number per
segment, in order and one per line. It may end with a JSON object: {"score": …, "version": …}.
"""

import os
import re
import shlex
import signal
import subprocess
from argparse import ArgumentTypeError
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec

from relumt.corpora.document_lengths import read_document_lengths
from relumt.corpora.tokenization import detokenize, lowercase
from relumt.errors import AttemptFailedError, UserError, quote
from relumt.files import decode_json, file_sha256, load_text, write_text_atomically
from relumt.plugin.tasks.document_chunks import join_groups
from relumt.process import finite_number, start_child
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.evaluation_record import Evaluation, ExternalScore
from relumt.runs.flags import list_known
from relumt.runs.launch import locked
from relumt.runs.record import RUN_RECORD, RunRecord, find_data_bin, load_record, save_record
from relumt.runs.scores import generate_output, load_scored_lines
from relumt.runs.translations import read_sources

METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)

SACREBLEU_METRICS = ("bleu", "chrf", "ter")

PLAIN_TEXT = "bleu_detokenized"
"""The score that is computed on plain text."""


@dataclass(frozen=True)
class Segment:
    """A sentence, or a document if documents were translated, as plain text. The fields are the keys in JSON lines."""

    source: str
    translation: str
    reference: str


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
    _, evaluation = require_evaluation(run, subset)
    if not METRIC_NAME.fullmatch(name) or name.lower() in {*SACREBLEU_METRICS, *evaluation.scores}:
        raise UserError(
            f"--name {quote(name)}: expected a letter and up to 39 letters, digits, '-' and '_', which no score of "
            "sacreBLEU has as its name"
        )
    with locked(run):
        segments = segments_of_run(run, subset, data)
        scores, score, version = score_with_command(command, segments, time_limit)
        path = run / f"{subset}.{name}.scores"
        write_text_atomically(path, "".join(f"{number!r}\n" for number in scores))
        sources = sha256("\n".join(segment.source for segment in segments).encode()).hexdigest()
        added = ExternalScore(score, command, version, path.name, file_sha256(path), sources)
        record, evaluation = require_evaluation(run, subset)
        evaluation = replace(evaluation, external=evaluation.external | {name: added})
        save_record(run, replace(record, evaluations=record.evaluations | {subset: evaluation}))
        return added


def remove_external_score(run: Path, subset: str, name: str) -> None:
    """Remove a score, and the file with the scores of its segments.

    Raises:
        UserError: there is no such score, or another process is working on the run.
    """
    with locked(run):
        record, evaluation = require_evaluation(run, subset)
        if name not in evaluation.external:
            raise UserError(f"{run}: no score {quote(name)} of {subset}; {list_known(name, evaluation.external)}")
        others = {other: score for other, score in evaluation.external.items() if other != name}
        evaluations = record.evaluations | {subset: replace(evaluation, external=others)}
        save_record(run, replace(record, evaluations=evaluations))
        (run / evaluation.external[name].segments).unlink(missing_ok=True)


def require_evaluation(run: Path, subset: str) -> tuple[RunRecord, Evaluation]:
    """Return a run's record, and the evaluation of a subset; raises UserError if it is not translated and scored."""
    record = load_record(run)
    if subset not in record.evaluations:
        raise UserError(f"{run}: '{subset}' is not translated and scored; run relumt run --evaluate")
    return record, record.evaluations[subset]


def load_segment_scores(run: Path, score: ExternalScore) -> list[str]:
    """Return the scores of the segments as they were written; raises UserError if the file is not that of `score`."""
    path = run / score.segments
    lines = load_text(path)
    if file_sha256(path) != score.segments_sha256:
        raise UserError(f"{path}: is not the file that {RUN_RECORD} describes; score it again with relumt score")
    return lines


def segments_of_run(run: Path, subset: str, data: Path | None) -> list[Segment]:
    """Return the segments of a scored subset as plain text, in order: what sacreBLEU scored, with the source.

    Args:
        run: folder of the run.
        subset: the subset.
        data: the data-bin, None for the one that the run names.

    Raises:
        UserError: the subset is not scored, a file is missing, or the data-bin is not the one that was translated.
    """
    record, evaluation = require_evaluation(run, subset)
    data_bin = open_data_bin(data or find_data_bin(run, record))
    if data_bin.evaluation_checksum(subset) != evaluation.setup.data:
        raise UserError(
            f"{data_bin.folder}: its {subset} set is not the one that {run} translated; evaluate the run again, or "
            "name the data-bin that was translated with --data"
        )
    translated, references = load_scored_lines(run, evaluation, PLAIN_TEXT)
    sources = load_sources(run, evaluation, data_bin)
    if len(sources) != len(references):
        raise UserError(
            f"{data_bin.folder}: has {len(sources)} sources of {subset}, but {len(references)} references were scored; "
            "prepare the data-bin again"
        )
    if data_bin.lowercased:  # texts before tokenization have case, which the model has neither read nor written
        sources, references = lowercase(sources), lowercase(references)
    return [Segment(*lines) for lines in zip(sources, translated, references, strict=True)]


def load_sources(run: Path, evaluation: Evaluation, data_bin: DataBin) -> list[str]:
    """Return the source of each segment as plain text, with one document per line if documents were translated.

    They are the texts in the data-bin or, if it has none, what fairseq-generate printed. Sentences are detokenized
    before they are joined if separators tell where they end in translations, else after.

    Raises:
        UserError: the data-bin has no texts, and fairseq-generate printed documents in chunks.
    """
    subset, language = evaluation.setup.subset, data_bin.source
    if not data_bin.prepared:
        if evaluation.documents:
            raise UserError(
                f"{data_bin.folder}: has no source text, which scoring documents needs; prepare it with relumt prepare"
            )
        lines = read_sources(generate_output(run, evaluation.setup))
        return detokenize(lines, language) if data_bin.tokenized else lines
    is_plain = data_bin.plain_references or not data_bin.tokenized
    lines = load_text(data_bin.text_path(subset, f"raw.{language}" if data_bin.plain_references else language))
    if not is_plain and (not evaluation.documents or evaluation.setup.flags.get("--document-separator")):
        lines, is_plain = detokenize(lines, language), True
    if evaluation.documents:
        lines = join_groups(lines, read_document_lengths(data_bin.folder / f"{subset}.docs", len(lines)))
    return lines if is_plain else detokenize(lines, language)


def encode_segments(segments: list[Segment]) -> bytes:
    """Return one JSON object per line."""
    return b"".join(msgspec.json.encode(segment) + b"\n" for segment in segments)


@dataclass(frozen=True)
class Summary:
    """The last line that a program may print.

    Attributes:
        score: score of all segments; None for the mean.
        version: what identifies the metric: the names and versions of program and model.
        input_sha256: SHA-256 of the segments that it scored, as `relumt score` prints them; "" if it does not say.
    """

    score: float | None = None
    version: Annotated[str, msgspec.Meta(max_length=300)] = ""
    input_sha256: str = ""


def score_with_command(command: str, segments: list[Segment], time_limit: int) -> tuple[list[float], float, str]:
    """Return the score of each segment and of all of them by another program, and its version, "" if unknown.

    The program's messages are printed. When its output ends, whatever it has started is killed.

    Args:
        command: the program and its arguments, quoted as for a shell; no shell reads it.
        segments: what to score.
        time_limit: seconds after which the program and all that it started are killed.

    Raises:
        UserError: there is no such program, or it cannot be executed.
        AttemptFailedError: it failed, took too long, did not print one finite number for each segment, or says that it
            scored other segments.
    """
    lines = encode_segments(segments)
    try:
        process = start_child(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError, IndexError) as error:  # no such program, an open quotation, no word
        raise UserError(f"--external {quote(command)}: cannot be executed ({error}); quote it as for a shell") from None
    try:
        output, _ = process.communicate(lines, time_limit)
    except subprocess.TimeoutExpired:
        raise AttemptFailedError(
            f"--external was killed after the time limit of {time_limit} s; give a longer one with --time-limit"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise AttemptFailedError(f"--external ended with status {process.returncode}; see its messages above")
    scores, summary = parse_output(output.decode(errors="replace"), len(segments))
    if summary.input_sha256 not in ("", sha256(lines).hexdigest()):
        raise AttemptFailedError(
            "--external printed scores of other segments (another checkpoint, subset or data-bin); score what relumt "
            "score RUN prints now"
        )
    return scores, fmean(scores) if summary.score is None else summary.score, summary.version


def parse_output(output: str, count: int) -> tuple[list[float], Summary]:
    """Return what a program printed for `count` segments: their scores, and what it says of all of them.

    Raises:
        AttemptFailedError: there are more or fewer, or one is not a finite number.
    """
    lines, summary = output.splitlines(), Summary()
    try:
        if lines and lines[-1].startswith("{"):
            summary = decode_json(lines.pop(), Summary, "the last line", "print a score")
        scores = [finite_number(line) for line in lines]
    except (ArgumentTypeError, UserError) as error:
        raise AttemptFailedError(f"--external printed something else than scores: {error}") from None
    if len(scores) != count:
        raise AttemptFailedError(f"--external printed {len(scores)} scores for {count} segments; expected one per line")
    return scores, summary
