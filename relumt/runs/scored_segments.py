"""The segments of a translated subset as plain text: what sacreBLEU scored, with the source."""

from dataclasses import dataclass
from pathlib import Path

from relumt.corpora.document_lengths import read_document_lengths
from relumt.corpora.tokenization import detokenize, lowercase
from relumt.errors import UserError
from relumt.plugin.tasks.document_chunks import join_groups
from relumt.runs.data_bin import DataBin
from relumt.runs.evaluation_record import Evaluation
from relumt.runs.evaluation_results import generate_output
from relumt.runs.scored_files import load_scored_lines
from relumt.runs.translations import TRANSLATE_AGAIN, read_sources
from relumt.text_files import load_text

PLAIN_TEXT = "bleu_detokenized"
"""The score that is computed on plain text."""


@dataclass(frozen=True)
class Segment:
    """A sentence, or a document if documents were translated, as plain text. The fields are the keys in JSON lines."""

    source: str
    translation: str
    reference: str


def load_segments(run: Path, evaluation: Evaluation, data_bin: DataBin) -> list[Segment]:
    """Return the segments that sacreBLEU scored as plain text, in order.

    Args:
        run: folder of the run.
        evaluation: the subset's.
        data_bin: the data that was translated.

    Raises:
        UserError: a file is missing, or the data-bin is not the one that was translated.
    """
    translated, expected = load_scored_lines(run, evaluation, PLAIN_TEXT)
    sources = load_sources(run, evaluation, data_bin, expected)
    if data_bin.lowercased:  # texts before tokenization have case, which the model has neither read nor written
        sources, expected = lowercase(sources), lowercase(expected)
    return [Segment(*lines) for lines in zip(sources, translated, expected, strict=True)]


def load_sources(run: Path, evaluation: Evaluation, data_bin: DataBin, references: list[str]) -> list[str]:
    """Return the source of each segment as plain text.

    Args:
        run, evaluation, data_bin: as for `load_segments`.
        references: those that were scored.

    Raises:
        UserError: the data-bin has another test set or no source text.
    """
    subset = evaluation.setup.subset
    if not data_bin.prepared:
        return load_translated_sources(run, evaluation, data_bin, len(references))
    source, target = (load_plain_text(data_bin, evaluation, language) for language in data_bin.languages)
    if target != references or len(source) != len(target):
        raise UserError(
            f"{data_bin.folder}: its references of {subset} are not those that {run} was scored on; name the data-bin "
            "that was translated with --data"
        )
    if data_bin.evaluation_checksum(subset) != evaluation.setup.data:
        raise UserError(
            f"{data_bin.folder}: its {subset} set was changed after {run} translated it; evaluate the run again, or "
            "name the data-bin that was translated with --data"
        )
    return source


def load_plain_text(data_bin: DataBin, evaluation: Evaluation, language: str) -> list[str]:
    """Return one side of a translated subset as plain text, with one document per line if documents were translated.

    Sentences are detokenized before they are joined if separators tell where they end in translations, else after.
    """
    subset = evaluation.setup.subset

    def join(lines: list[str]) -> list[str]:
        return join_groups(lines, read_document_lengths(data_bin.folder / f"{subset}.docs", len(lines)))

    if data_bin.plain_references or not data_bin.tokenized:
        suffix = f"raw.{language}" if data_bin.plain_references else language
        lines = load_text(data_bin.text_path(subset, suffix))
        return join(lines) if evaluation.documents else lines
    lines = load_text(data_bin.text_path(subset, language))
    if not evaluation.documents:
        return detokenize(lines, language)
    if evaluation.setup.flags.get("--document-separator"):
        return join(detokenize(lines, language))
    return detokenize(join(lines), language)


def load_translated_sources(run: Path, evaluation: Evaluation, data_bin: DataBin, count: int) -> list[str]:
    """Return the sources that fairseq-generate printed, for a data-bin that has no texts.

    Raises:
        UserError: they are documents, which it printed in chunks, or their number is not `count`.
    """
    if evaluation.documents:
        raise UserError(
            f"{data_bin.folder}: has no source text, which scoring documents needs; prepare it with "
            "data_prep/prepare.sh"
        )
    path = generate_output(run, evaluation.setup)
    lines = read_sources(path)
    if len(lines) != count:
        raise UserError(f"{path}: expected {count} sources, found {len(lines)}; {TRANSLATE_AGAIN}")
    return detokenize(lines, data_bin.source) if data_bin.tokenized else lines
