"""Rank the sentence pairs of a parallel corpus by a model's scores, and select those to keep ([RL] section 5.2)."""

import math
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import compress, islice, zip_longest
from pathlib import Path

import numpy as np

from relumt.analysis.pair_scoring import PairScore
from relumt.atomic_output import atomic_file, atomic_files
from relumt.attention import Mechanism
from relumt.corpora.bitext import PathPair, check_line_counts
from relumt.errors import AttemptFailedError, UserError
from relumt.inference.loaded_model import LoadedModel, TokenPair
from relumt.inference.text_encoding import index_words, load_segmenter
from relumt.modules.hooks import named_attentions
from relumt.text_files import decode_lines, normalize_line, open_bytes, open_text

MEASURES = ("null_rate", "cross_entropy")
"""Fields of `PairScore`, in the order of the columns of OUT.scores."""

LINES_AT_ONCE = 1000
"""Number of lines that are segmented together."""


class CopiedPairs:
    """The normalized sentence pairs of two texts, copied to a temporary file because they are needed twice.

    Each text is read once, so it can be a pipe such as `<(zcat corpus.de.gz)`, and may change later. Both are read line
    by line in turn, so one process can write to two pipes. The temporary file has no name: nothing is left of it.

    Args:
        texts: source and target.
        folder: folder on the disk that has room for a copy.

    Raises:
        UserError: a text is missing, empty or not UTF-8, or the texts differ in their number of lines.
    """

    def __init__(self, texts: PathPair, folder: Path) -> None:
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=folder)  # noqa: SIM115  # is closed with self
        counts = [0, 0]
        with ExitStack() as stack:
            # Both are opened before either is read: a process that writes to two pipes may wait for that.
            files = [stack.enter_context(open_bytes(text)) for text in texts]
            for pair in zip_longest(*map(decode_lines, files, map(str, texts))):
                for side, line in enumerate(pair):
                    counts[side] += line is not None
                    self.file.write(normalize_line(line or "") + "\n")
        check_line_counts(texts, counts, lambda side: islice((pair[side] for pair in self), counts[side]))
        self.count = counts[0]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield source and target of each pair; only one iteration at a time."""
        self.file.seek(0)
        lines = (line.removesuffix("\n") for line in self.file)
        return zip(lines, lines, strict=True)


def encode_pairs(loaded: LoadedModel, data: Path, pairs: Iterable[tuple[str, str]]) -> Iterator[TokenPair]:
    """Yield sentence pairs as token indices, segmented like the data-bin."""
    segment = load_segmenter(data)
    dictionaries = loaded.task.source_dictionary, loaded.task.target_dictionary
    stream = iter(pairs)
    while block := list(islice(stream, LINES_AT_ONCE)):
        sources, targets = (
            [index_words(line, dictionary) for line in segment(list(lines))]
            for lines, dictionary in zip(zip(*block, strict=True), dictionaries, strict=True)
        )
        yield from zip(sources, targets, strict=True)


def write_scores(scores: Iterable[PairScore], path: Path) -> np.ndarray:
    """Write the scores of pairs to a file, one line per pair with "nan" for None.

    Returns:
        The same numbers, [pairs, 2], in the order of `MEASURES`; NaN for None.

    Raises:
        AttemptFailedError: a score is infinite or NaN, so the model cannot be used.
    """
    columns = array("d")
    with atomic_file(path) as unfinished, open_text(unfinished, "w") as file:
        for number, score in enumerate(scores, start=1):
            values = [float("nan") if (x := getattr(score, name)) is None else x for name in MEASURES]
            if score.cross_entropy is not None and not math.isfinite(score.cross_entropy):
                raise AttemptFailedError(f"pair {number}: the model's probabilities are not numbers; use another model")
            columns.extend(values)
            file.write("\t".join("nan" if value != value else f"{value:.6f}" for value in values) + "\n")
    return np.frombuffer(columns).reshape(-1, len(MEASURES))


def select_up_to(scores: np.ndarray, by: str, threshold: float) -> np.ndarray:
    """Return which pairs have a score of at most `threshold`, [pairs] bool; arguments as for `select_lowest`."""
    is_kept: np.ndarray = scores[:, MEASURES.index(by)] <= threshold
    return is_kept


def select_lowest(scores: np.ndarray, by: str, share: float) -> np.ndarray:
    """Return which pairs have the lowest scores, [pairs] bool; among equal scores, those with low cross-entropy.

    Args:
        scores: [pairs, 2], see `write_scores`; pairs without scores are not selected.
        by: measure to rank by.
        share: share of the scored pairs to select.
    """
    ranks, cross_entropy = scores[:, MEASURES.index(by)], scores[:, MEASURES.index("cross_entropy")]
    is_kept = np.zeros(len(ranks), dtype=bool)
    order = np.lexsort((cross_entropy, ranks))  # sorts NaN last
    is_kept[order[: round(share * np.count_nonzero(~np.isnan(ranks)))]] = True
    return is_kept


def write_selected(pairs: Iterable[tuple[str, str]], is_kept: np.ndarray, outputs: PathPair) -> None:
    """Write the selected pairs, in their order, to a file for each side, as `atomic_files` does."""
    with atomic_files(outputs) as unfinished, ExitStack() as stack:
        source_file, target_file = (stack.enter_context(open_text(path, "w")) for path in unfinished)
        for source, target in compress(pairs, is_kept):
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def require_null_rows(loaded: LoadedModel) -> None:
    """Raise UserError if no cross-attention mechanism of the model can have null rows."""
    attentions = named_attentions(loaded.model).values()
    if not any(can_have_null_rows(attention.mechanism) for attention in attentions if attention.site == "cross"):
        raise UserError(f"{loaded.path}: the cross-attention of this model never has null rows; use --by cross_entropy")


def can_have_null_rows(mechanism: Mechanism) -> bool:
    """Return whether all weights of a query can be 0, and whether row statistics show it."""
    return mechanism.has_weights and not mechanism.has_negative_weights and not mechanism.weights_sum_to_one
