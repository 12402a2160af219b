"""Rank the sentence pairs of a parallel corpus by a model's scores, and select those to keep ([RL] section 5.2)."""

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from relumt.analysis.loaded_model import LoadedModel, load_segmenter
from relumt.analysis.pair_scoring import PairScore, TokenPair
from relumt.atomic_output import atomic_file
from relumt.attention import Mechanism
from relumt.errors import UserError
from relumt.modules.hooks import named_attentions
from relumt.prep.bitext import check_line_counts
from relumt.text_files import normalize_line, open_text, read_lines, write_lines

MEASURES = ("null_rate", "cross_entropy")
"""Fields of `PairScore`, in the order of the columns of OUT.scores."""

LINES_AT_ONCE = 1000
"""Number of lines that are segmented together."""


def count_pairs(source: Path, target: Path) -> int:
    """Return the number of sentence pairs; raise UserError if the texts differ in their number of lines."""
    texts = source, target
    counts = [sum(1 for _ in read_lines(path)) for path in texts]
    check_line_counts(texts, counts, lambda side: read_lines(texts[side]))
    return counts[0]


def encode_pairs(loaded: LoadedModel, data: Path, source: Path, target: Path) -> Iterator[TokenPair]:
    """Yield the sentence pairs of two texts as token indices, segmented like the data-bin."""
    segment = load_segmenter(data)
    dictionaries = loaded.task.source_dictionary, loaded.task.target_dictionary
    sides = [map(normalize_line, read_lines(path)) for path in (source, target)]
    while (block := [list(islice(side, LINES_AT_ONCE)) for side in sides])[0]:
        sources, targets = (
            [dictionary.encode_line(line, add_if_not_exist=False).long() for line in segment(lines)]
            for lines, dictionary in zip(block, dictionaries, strict=True)
        )
        yield from zip(sources, targets, strict=True)


def write_scores(scores: Iterable[PairScore], path: Path) -> np.ndarray:
    """Write the scores of pairs to a file, one line per pair with "nan" for None.

    Returns:
        The same numbers, [pairs, 2], in the order of `MEASURES`; NaN for None.
    """
    columns = array("d")
    with atomic_file(path) as unfinished, open_text(unfinished, "w") as file:
        for score in scores:
            values = [float("nan") if (x := getattr(score, name)) is None else x for name in MEASURES]
            columns.extend(values)
            file.write("\t".join("nan" if value != value else f"{value:.6f}" for value in values) + "\n")
    return np.frombuffer(columns).reshape(-1, len(MEASURES))


def select_pairs(scores: np.ndarray, by: str, threshold: float | None, share: float | None) -> np.ndarray:
    """Return which pairs to keep, [pairs] bool: those with a score of at most `threshold`, or the lowest `share`.

    Pairs without scores are not kept. Among pairs with equal scores, a share prefers those with low cross-entropy.

    Args:
        scores: [pairs, 2], see `write_scores`.
        by: measure to rank by.
        threshold: highest score to keep; None to keep a share.
        share: share of the scored pairs to keep, if there is no threshold.
    """
    ranks, cross_entropy = scores[:, MEASURES.index(by)], scores[:, MEASURES.index("cross_entropy")]
    if threshold is not None or share is None:
        return ranks <= (np.inf if threshold is None else threshold)
    is_kept = np.zeros(len(ranks), dtype=bool)
    order = np.lexsort((cross_entropy, ranks))  # sorts NaN last
    is_kept[order[: round(share * np.count_nonzero(~np.isnan(ranks)))]] = True
    return is_kept


def write_selected(text: Path, is_kept: np.ndarray, out: Path) -> None:
    """Write the selected lines of a text, in their order."""
    lines = map(normalize_line, read_lines(text))
    with atomic_file(out) as unfinished:
        write_lines(unfinished, (line for line, keep in zip(lines, is_kept, strict=True) if keep))


def require_null_rows(loaded: LoadedModel) -> None:
    """Raise UserError if no cross-attention mechanism of the model can have null rows."""
    attentions = named_attentions(loaded.model).values()
    if not any(can_have_null_rows(attention.mechanism) for attention in attentions if attention.site == "cross"):
        raise UserError(f"{loaded.path}: the cross-attention of this model never has null rows; use --by cross_entropy")


def can_have_null_rows(mechanism: Mechanism) -> bool:
    """Return whether all weights of a query can be 0, and whether row statistics show it."""
    return mechanism.has_weights and not mechanism.has_negative_weights and not mechanism.weights_sum_to_one
