"""The translations of a subset: what fairseq-generate printed, paired with references, as tokens and as plain text.

A length penalty divides the log-probability of a finished hypothesis by a function of its length. Neither fairseq's
beam search nor relumt's looks at it before: a search ends when it has as many finished hypotheses as the beam is wide.
So one translation with --lenpen 0 and --nbest BEAM has the hypotheses for every penalty.
"""

import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from relumt.corpora.tokenization import detokenize, tokenize
from relumt.errors import UserError, quote
from relumt.files import load_text
from relumt.runs.data_bin import DataBin

OUTPUT_KINDS = "STDP"
"""Lines begin with S- for a source, T- for a reference, D- for a hypothesis and P- for the scores of its tokens."""

INDEX = re.compile(r"[0-9]{1,18}")
LAST_LINE_PREFIX = "Generate "
TRANSLATE_AGAIN = "run relumt run --evaluate again"
SPEED = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| INFO \| fairseq_cli\.generate \| |INFO:fairseq_cli\.generate:)"
    r"Translated [\d,]+ sentences .*, (?P<speed>\d+\.\d+) tokens/s\)",
    re.ASCII,
)
"""Message of fairseq-generate; its start depends on whether a library has set up logging before."""


@dataclass(frozen=True)
class GeneratedOutput:
    """What fairseq-generate wrote, by the sentence's index in the subset.

    Attributes:
        hypotheses: the best translation of each sentence, with subwords joined.
        references: the reference of each sentence as the dictionary encodes it, with <<unk>> for unknown words.
    """

    hypotheses: dict[int, str]
    references: dict[int, str]


@dataclass(frozen=True)
class Translations:
    """Hypotheses and references of one subset, line by line, in two forms.

    Attributes:
        tokenized_hypotheses, tokenized_references: Moses tokens.
        hypotheses, references: plain text.
    """

    tokenized_hypotheses: list[str]
    tokenized_references: list[str]
    hypotheses: list[str]
    references: list[str]

    def without(self, excluded: Collection[int]) -> "Translations":
        """Return a copy without the lines of these indices."""
        kept = [index not in excluded for index in range(len(self.hypotheses))]
        columns = (self.tokenized_hypotheses, self.tokenized_references, self.hypotheses, self.references)
        return Translations(*(list(compress(lines, kept)) for lines in columns))

    def references_sha256(self) -> str:
        """Return a hash over both forms of the references, which identifies the test set."""
        return hashlib.sha256("\n".join(self.tokenized_references + self.references).encode()).hexdigest()


def read_generated(path: Path, divisor: Callable[[int], float] | None = None) -> GeneratedOutput:
    """Read the output of fairseq-generate.

    Args:
        path: the file.
        divisor: None to take the first hypothesis of each sentence, which is the best. For a translation with
            --lenpen 0 and --nbest, the function of the length that divides log-probabilities; the hypothesis with the
            highest quotient is taken, the first of several equal ones. The end of the sentence counts.

    Raises:
        UserError: the file is missing, truncated or damaged.
    """
    found = _read_output_lines(path)

    def best(index: int, lines: list[str]) -> str:
        if divisor is None:
            return lines[0]
        pairs = zip(lines, found["P"].get(index, []), strict=True)
        scores = [float(line.partition("\t")[0]) / divisor(len(tokens.split())) for line, tokens in pairs]
        return lines[scores.index(max(scores))]

    try:
        hypotheses = {index: best(index, lines).partition("\t")[2] for index, lines in found["D"].items()}
    except ValueError:  # a score is no number, or there are more or fewer than hypotheses
        raise UserError(
            f"{path}: expected a score of each hypothesis (D-…), and the scores of its tokens (P-…); {TRANSLATE_AGAIN}"
        ) from None
    return GeneratedOutput(hypotheses, _first(found["T"]))


def read_sources(path: Path) -> list[str]:
    """Return the sources in the output of fairseq-generate by index, with subwords joined; raises as `read_generated`.

    An index without a source is left out.
    """
    return [source for _, source in sorted(_first(_read_output_lines(path)["S"]).items())]


def _first(texts: dict[int, list[str]]) -> dict[int, str]:
    return {index: lines[0] for index, lines in texts.items()}


def _read_output_lines(path: Path) -> dict[str, dict[int, list[str]]]:
    """Return the texts of the lines KIND-INDEX <tab> TEXT by kind and index; that of D is SCORE <tab> HYPOTHESIS."""
    found: dict[str, dict[int, list[str]]] = {kind: {} for kind in OUTPUT_KINDS}
    lines = load_text(path)
    if not lines or not lines[-1].startswith(LAST_LINE_PREFIX):
        raise UserError(f"{path} is truncated, so fairseq-generate failed; {TRANSLATE_AGAIN}")
    for number, line in enumerate(lines[:-1], start=1):
        kind, hyphen, rest = line.partition("-")
        if kind in found and hyphen:
            index, tab, text = rest.partition("\t")
            if not tab or not INDEX.fullmatch(index) or (kind == "D" and "\t" not in text):
                raise UserError(
                    f"{path}:{number}: expected {kind}-INDEX and a text, found {quote(line)}; {TRANSLATE_AGAIN}"
                )
            found[kind].setdefault(int(index), []).append(text)
    return found


def read_speed(*paths: Path) -> float | None:
    """Return the speed of beam search in tokens per second from the file to which fairseq logged it, else None."""
    for path in paths:
        for line in load_text(path):
            if match := SPEED.match(line):
                return float(match["speed"])
    return None


def align_translations(generated: GeneratedOutput, data_bin: DataBin, subset: str) -> Translations:
    """Pair every translation with its reference, in both forms.

    Raises:
        UserError: a translation or a reference is missing, or there are too many, or the subset is empty.
    """
    tokenized, plain = load_references(generated, data_bin, subset, data_bin.num_sentences(subset))
    hypotheses = lines_in_order(generated.hypotheses, len(tokenized), subset)
    tokenized_hypotheses, plain_hypotheses = to_both_forms(hypotheses, data_bin)
    return Translations(tokenized_hypotheses, tokenized, plain_hypotheses, plain)


def to_both_forms(lines: list[str], data_bin: DataBin) -> tuple[list[str], list[str]]:
    """Return lines in the data-bin's form as Moses tokens and as plain text."""
    if data_bin.tokenized:
        return lines, detokenize(lines, data_bin.target)
    return tokenize(lines, data_bin.target), lines


def load_references(
    generated: GeneratedOutput,
    data_bin: DataBin,
    subset: str,
    count: int,
    join: Callable[[list[str]], list[str]] = lambda lines: lines,
) -> tuple[list[str], list[str]]:
    """Return the references as Moses tokens and as plain text.

    They are the reference texts in the data-bin or, if it has none, what its dictionary can encode.

    Args:
        generated: the output of fairseq-generate.
        data_bin: the data-bin that was translated.
        subset: the subset that was translated.
        count: number of references before they are joined.
        join: joins references to longer ones before they are tokenized or detokenized.

    Raises:
        UserError: a reference is missing, or there are too many, or none.
    """
    if not count:
        raise UserError(f"{data_bin.prefix(subset)}: there is no sentence to translate; prepare the data-bin again")
    if not data_bin.prepared:
        return to_both_forms(join(lines_in_order(generated.references, count, subset)), data_bin)

    def load(suffix: str) -> list[str]:
        path = data_bin.text_path(subset, suffix)
        lines = load_text(path)
        if len(lines) != count:
            raise UserError(
                f"{path}: expected {count} references, as many as sentences in the data-bin, found {len(lines)}; "
                "prepare the data-bin again"
            )
        return join(lines)

    tokenized, plain = to_both_forms(load(data_bin.target), data_bin)
    return tokenized, load(f"raw.{data_bin.target}") if data_bin.plain_references else plain


def lines_in_order(found: dict[int, str], count: int, subset: str) -> list[str]:
    """Return the lines by index; raises UserError unless the indices are 0 to `count` - 1."""
    if unmatched := sorted(found.keys() ^ set(range(count))):
        raise UserError(
            f"{subset}: sentence {unmatched[0] + 1} and {len(unmatched) - 1} others of {count} have no translation or "
            "no reference; prepare the data-bin again, and do not let fairseq-generate skip sentences"
        )
    return [found[index] for index in range(count)]
