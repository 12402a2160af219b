"""Score and select sentence pairs by the null rate of cross-attention ([RL] §5.2, "Is null attention meaningful?").

The null rate of a pair is the share of null rows in cross-attention, averaged over target positions, heads and layers.
The model's cross-entropy per token, the usual criterion for filtering, is computed as well. Pairs are read as a stream,
so a corpus can have any size.
"""

import math
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import compress, islice, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput
from relumt.corpora.bitext import PathPair, check_line_counts
from relumt.errors import AttemptFailedError, UserError
from relumt.files import atomic_file, atomic_files, decode_lines, normalize_line, open_bytes, open_text
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook, named_attentions
from relumt.runs.inference.loaded_model import LoadedModel, TokenPair
from relumt.runs.inference.search import batches_by_length
from relumt.runs.inference.text_encoding import index_words, load_segmenter

BUFFER_SIZE = 10_000
"""Number of pairs that are read and segmented at once, and batched by length."""


class PairScore(NamedTuple):
    """Scores of a sentence pair, in the order of the columns of OUT.scores; both NaN if it is too long for the model.

    Attributes:
        null_rate: null rate of cross-attention, 0 to 1; NaN for a mechanism without row statistics.
        cross_entropy: nats per target token, including the end-of-sentence symbol.
    """

    null_rate: float = math.nan
    cross_entropy: float = math.nan


MEASURES = PairScore._fields


class CopiedPairs:
    """The normalized sentence pairs of two texts, copied to a temporary file because they are needed twice.

    Each text is read once, so it can be a pipe such as `<(zcat corpus.de.gz)`. Both are read line by line in turn, so
    one process can write to two pipes.

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
        check_line_counts(texts, counts)
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
    while block := list(islice(stream, BUFFER_SIZE)):
        sides = zip(zip(*block, strict=True), dictionaries, strict=True)
        sources, targets = ([index_words(x, dictionary) for x in segment(list(lines))] for lines, dictionary in sides)
        yield from zip(sources, targets, strict=True)


def score_pairs(loaded: LoadedModel, pairs: Iterable[TokenPair], max_tokens: int) -> Iterator[PairScore]:
    """Score a stream of sentence pairs, and yield the scores in order.

    Args:
        loaded: the model.
        pairs: source and target of each pair.
        max_tokens: limit for the padded size of a batch's longer side.
    """
    stream = iter(pairs)
    max_source, max_target = loaded.model.max_positions()
    while block := list(islice(stream, BUFFER_SIZE)):
        fitting = [i for i, (s, t) in enumerate(block) if len(s) <= max_source and len(t) <= max_target]
        scores = [PairScore()] * len(block)
        for positions in batches_by_length([max(map(len, block[i])) for i in fitting], max_tokens=max_tokens):
            batch = [fitting[position] for position in positions]
            for i, score in zip(batch, score_batch(loaded, [block[i] for i in batch]), strict=True):
                scores[i] = score
        yield from scores


@torch.no_grad()
def score_batch(loaded: LoadedModel, pairs: Sequence[TokenPair]) -> list[PairScore]:
    """Score pairs in one batch, and return the scores in order.

    Raises:
        AttemptFailedError: a probability is infinite or NaN, so the model cannot be used.
    """
    sample = loaded.collate([source for source, _ in pairs], [target for _, target in pairs])
    is_real = sample["target"].ne(loaded.task.target_dictionary.pad())
    num_tokens = is_real.sum(-1)
    layer_rates: list[Tensor] = []

    def add(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross" and result.row_stats is not None:
            null_rate = result.row_stats.is_null.float().mean(1)  # [B, H, T] -> [B, T]
            layer_rates.append((null_rate * is_real).sum(-1) / num_tokens)

    with attention_hook(loaded.model, add):
        log_p = loaded.target_log_probs(sample)
    cross_entropies = (-(log_p * is_real).sum(-1) / num_tokens).tolist()
    if not all(map(math.isfinite, cross_entropies)):
        raise AttemptFailedError(f"{loaded.path}: probabilities are not numbers; use another model")
    null_rates = torch.stack(layer_rates).mean(0).tolist() if layer_rates else [math.nan] * len(pairs)
    scores = dict(zip(sample["id"].tolist(), map(PairScore, null_rates, cross_entropies), strict=True))
    return [scores[i] for i in range(len(pairs))]


def write_scores(scores: Iterable[PairScore], path: Path) -> np.ndarray:
    """Write the scores of pairs to a file, one line per pair; return them, [pairs, 2], in the order of `MEASURES`."""
    columns = array("d")
    with atomic_file(path) as unfinished, open_text(unfinished, "w") as file:
        for score in scores:
            columns.extend(score)
            file.write("\t".join(f"{value:.6f}" for value in score) + "\n")
    return np.frombuffer(columns).reshape(-1, len(MEASURES))


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
        files = [stack.enter_context(open_text(path, "w")) for path in unfinished]
        for pair in compress(pairs, is_kept):
            for file, line in zip(files, pair, strict=True):
                file.write(line + "\n")


def require_null_rows(loaded: LoadedModel) -> None:
    """Raise UserError if no cross-attention mechanism of the model can have null rows that row statistics show."""
    mechanisms = [found.mechanism for found in named_attentions(loaded.model).values() if found.site == "cross"]
    if not any(m.has_weights and not m.has_negative_weights and not m.weights_sum_to_one for m in mechanisms):
        raise UserError(f"{loaded.path}: the cross-attention of this model never has null rows; use --by cross_entropy")
