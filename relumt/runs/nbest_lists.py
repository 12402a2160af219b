"""n-best lists that fairseq-generate wrote, and the best hypotheses in them under another length penalty.

A length penalty divides the log-probability of a finished hypothesis by a function of its length. Neither fairseq's
beam search nor relumt's looks at it before: a search ends when it has as many finished hypotheses as the beam is wide.
So one translation with --lenpen 0 and --nbest BEAM has the hypotheses for every penalty.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError, quote
from relumt.runs.translations import TRANSLATE_AGAIN, GeneratedOutput, read_generated
from relumt.text_files import load_text


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis: its text with subwords joined, log-probability, and number of tokens with the end-of-sentence."""

    text: str
    log_probability: float
    length: int


@dataclass(frozen=True)
class NBestLists:
    """Hypotheses and reference of each sentence or chunk, by its index in the subset."""

    hypotheses: dict[int, list[Hypothesis]]
    references: dict[int, str]

    def best(self, divisor: Callable[[int], float]) -> GeneratedOutput:
        """Return the output of a translation that divides log-probabilities by `divisor` of the length.

        The first of several equal hypotheses is taken.
        """

        def score(hypothesis: Hypothesis) -> float:
            return hypothesis.log_probability / divisor(hypothesis.length)

        best = {index: max(hypotheses, key=score).text for index, hypotheses in self.hypotheses.items()}
        return GeneratedOutput(best, self.references)


def read_nbest(path: Path) -> NBestLists:
    """Read the output of fairseq-generate with --lenpen 0 and --nbest.

    Raises:
        UserError: the file is missing, truncated or damaged.
    """
    references = read_generated(path).references
    lists: dict[int, list[Hypothesis]] = {}
    lines = load_text(path)
    for number, line in enumerate(lines):
        if not line.startswith("D-"):
            continue
        index, score, text = line.removeprefix("D-").split("\t", 2)  # read_generated has checked the form
        name, _, token_scores = lines[number + 1].partition("\t")
        if name != f"P-{index}" or not token_scores or not _is_number(score):
            raise UserError(
                f"{path}:{number + 1}: expected a score, a hypothesis and the line P-{index} with the scores of its "
                f"tokens, found {quote(line)}; {TRANSLATE_AGAIN}"
            )
        lists.setdefault(int(index), []).append(Hypothesis(text, float(score), len(token_scores.split())))
    return NBestLists(lists, references)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
