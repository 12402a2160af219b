"""Scores a translated subset with another program, such as a neural metric, and records the result in run.json.

The program reads one JSON object per line: {"source": …, "translation": …, "reference": …}. It prints one number per
segment, in order and one per line. It may end with a JSON object: {"score": …, "version": …}.
"""

import os
import re
import shlex
import signal
import subprocess
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import IO, Annotated

import msgspec

from relumt.corpora.document_lengths import read_document_lengths
from relumt.corpora.tokenization import detokenize, lowercase
from relumt.errors import AttemptFailedError, UserError, quote
from relumt.files import decode_json, file_sha256, load_text, write_text_atomically
from relumt.plugin.tasks.document_chunks import join_groups
from relumt.process import finite_number, start_child
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.evaluation_record import Evaluation, ExternalScore
from relumt.runs.launch import locked
from relumt.runs.record import RUN_RECORD, RunRecord, load_record, save_record
from relumt.runs.scores import generate_output, load_scored_lines
from relumt.runs.translations import read_sources

METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)

SACREBLEU_METRICS = ("bleu", "chrf", "ter")

SCORE_AGAIN = "score it again with relumt score"

PLAIN_TEXT = "bleu_detokenized"
"""The score that is computed on plain text."""

MAX_SHOWN = 200
"""Characters of a message of the program that are printed."""

EXPECTED = "expected one number per line for each segment"


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
    require_metric_name(name, require_evaluation(run, load_record(run), subset))
    with locked(run):
        segments = segments_of_run(run, subset, data)
        scores, score, version = score_with_command(command, segments, time_limit)
        path = run / f"{subset}.{name}.scores"
        write_text_atomically(path, "".join(f"{number!r}\n" for number in scores))
        sources = sha256("\n".join(segment.source for segment in segments).encode()).hexdigest()
        added = ExternalScore(score, command, version, path.name, file_sha256(path), sources)
        record = load_record(run)
        evaluation = require_evaluation(run, record, subset)
        evaluation = replace(evaluation, external=evaluation.external | {name: added})
        save_record(run, replace(record, evaluations=record.evaluations | {subset: evaluation}))
        return added


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


def load_segment_scores(run: Path, score: ExternalScore) -> list[str]:
    """Return the scores of the segments as they were written; raises UserError if the file is not that of `score`."""
    path = run / score.segments
    lines = load_text(path)
    if file_sha256(path) != score.segments_sha256:
        raise UserError(f"{path}: is not the file that {RUN_RECORD} describes; {SCORE_AGAIN}")
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
    record = load_record(run)
    evaluation = require_evaluation(run, record, subset)
    data_bin = open_data_bin(data or Path(record.data_bin))
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
                f"{data_bin.folder}: has no source text, which scoring documents needs; prepare it with "
                "data_prep/prepare.sh"
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


@dataclass(frozen=True)
class Summary:
    """The last line that a program may print.

    Attributes:
        score: score of all segments; None for the mean.
        version: what identifies the metric: the names and versions of program and model.
    """

    score: float | None = None
    version: Annotated[str, msgspec.Meta(max_length=300)] = ""


def score_with_command(command: str, segments: Sequence[Segment], time_limit: int) -> tuple[list[float], float, str]:
    """Return the score of each segment and of all of them by another program, and its version, "" if unknown.

    Args:
        command: the program and its arguments, quoted as for a shell; no shell reads it.
        segments: what to score.
        time_limit: seconds after which the program and all that it started are killed.

    Raises:
        UserError: there is no such program, or it cannot be executed.
        AttemptFailedError: it failed, took too long, or did not print one finite number for each segment.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--external {command!r}: {error}; quote it as for a shell") from None
    if not words:
        raise UserError(f"--external {command!r}: expected a program and its arguments")
    with tempfile.TemporaryFile() as stdin:
        for segment in segments:
            stdin.write(msgspec.json.encode(segment) + b"\n")
        stdin.seek(0)
        return parse_output(run_command(words, stdin, time_limit), len(segments))


def run_command(command: Sequence[str], stdin: IO[bytes], time_limit: int) -> bytes:
    """Return what a program prints. Whatever it has started is killed when it ends or fails.

    Raises:
        UserError: there is no such program, or it cannot be executed.
        AttemptFailedError: it failed or took too long.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        try:
            process = start_child(command, stdin=stdin, stdout=output, stderr=messages, start_new_session=True)
        except OSError as error:
            raise UserError(
                f"--external: {command[0]} cannot be executed ({error.strerror}); name a program, or an interpreter "
                "and its script"
            ) from None
        try:
            status = process.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise AttemptFailedError(
                f"{command[0]} was killed after the time limit of {time_limit} s; give a longer one with --time-limit"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        messages.seek(0)
        if status == 0:
            return output.read()
        # The last line, because a traceback ends with the error.
        lines = [line.strip() for line in messages.read().decode(errors="replace").splitlines() if line.strip()]
    end = f"ended with status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
    problem = f": {lines[-1][:MAX_SHOWN]}" if lines else " and printed no error message"
    raise AttemptFailedError(f"{command[0]} {end}{problem}")


def parse_output(output: bytes, count: int) -> tuple[list[float], float, str]:
    """Return what a program printed for `count` segments: their scores, the score of all of them, and its version.

    Raises:
        AttemptFailedError: there are more or fewer, or one is not a finite number.
    """
    lines = output.decode(errors="replace").removesuffix("\n").split("\n")
    summary, scores = Summary(), []
    try:
        if lines[-1].startswith("{"):
            summary = decode_json(lines.pop(), Summary, "--external, last line of its output", "print a score")
        for line in lines if any(lines) else []:
            scores.append(finite_number(line.strip()))
    except ArgumentTypeError as error:
        raise AttemptFailedError(f"--external, line {len(scores) + 1} of its output: {error}; {EXPECTED}") from None
    except UserError as error:
        raise AttemptFailedError(str(error)) from None
    if len(scores) != count:
        raise AttemptFailedError(f"--external printed {len(scores)} scores for {count} segments; {EXPECTED}")
    return scores, fmean(scores) if summary.score is None else summary.score, summary.version
