"""Joint subword segmentation, learned on both sides of the training set together.

A `BpeMethod` learns its merges or model into a folder, and loads from that folder the function that rewrites lines into
lines of space-separated subwords.
"""

import gc
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.corpora.parallel import count_words
from relumt.errors import UserError
from relumt.text_files import Advance, Rewrite, read_clean_lines, write_lines

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

SUBWORD_NMT_FILE, SENTENCEPIECE_FILE = "bpe.codes", "bpe.model"

MAX_CACHED_WORDS = 1 << 18
"""Bounds the memory of a process; about 60 MB."""

MIN_FREQUENCY = 2
"""A pair that occurs once is not merged."""

PRUNE_EVERY = 100
"""Number of merges between two removals of rare pairs."""

Pair = tuple[str, str]
Symbols = tuple[str, ...]


@dataclass(frozen=True)
class BpeMethod:
    """A subword segmentation method.

    Attributes:
        learn: called as learn(texts, vocab_size, folder, advance), learns on the files `texts` and returns the
            vocabulary size that it reached.
        load: called as load(folder), returns the function that segments lines.
        file: name of the file in a data-bin with the merges or the model.
    """

    learn: Callable[[Sequence[Path], int, Path, Advance], int]
    load: Callable[[Path], Rewrite]
    file: str


def learn_subword_nmt(texts: Sequence[Path], merges: int, folder: Path, advance: Advance) -> int:
    """Learn up to `merges` merges into `folder`/bpe.codes, as `subword-nmt learn-bpe -s merges` does.

    Returns:
        The number of merges learned: fewer than `merges` if no pair of symbols occurs twice any more.

    Raises:
        UserError: no merge can be learned.
    """
    learned = []
    gc.disable()  # it would search the millions of tuples of the statistics, which have no cycles, again and again
    try:
        for first, second in learn_merges(count_words(texts), merges):
            learned.append(f"{first} {second}")
            advance(1)
    finally:
        gc.enable()
    if not learned:
        raise UserError("no pair of letters occurs twice in the training set, so there is no BPE; use --bpe none")
    write_lines(folder / SUBWORD_NMT_FILE, ["#version: 0.2", *learned])
    return len(learned)


def learn_merges(word_counts: Counter[str], num_merges: int) -> Iterator[Pair]:
    """Yield up to `num_merges` merges, the most frequent pair of symbols first.

    The result and the statistics are subword-nmt's, which takes many times as long: for each merge, it compares all
    pairs of symbols and searches words with a regular expression. Here pairs are indexed by frequency, and words are
    searched as strings. Rare pairs are set aside when subword-nmt does it: a pair that has been set aside and
    reappears is counted from 0, which affects the result.
    """
    from subword_nmt.learn_bpe import get_pair_statistics, prune_stats, update_pair_statistics

    counted = [((*word[:-1], word[-1] + "</w>"), count) for word, count in word_counts.items()]
    words = sorted(counted, key=lambda item: item[1], reverse=True)
    all_frequencies, words_by_pair = get_pair_statistics(words)
    threshold = max(all_frequencies.values(), default=0) / 10
    frequencies = PairFrequencies(all_frequencies, threshold)
    for step in range(num_merges):
        pair = frequencies.find_most_frequent()
        if pair is None:
            prune_stats(frequencies, all_frequencies, threshold)
            threshold = max(all_frequencies.values(), default=0) * step / (step + 10_000)
            frequencies = PairFrequencies(all_frequencies, threshold)
            prune_stats(frequencies, all_frequencies, threshold)
            pair = frequencies.find_most_frequent()
        if pair is None or frequencies[pair] < MIN_FREQUENCY:
            return
        yield pair
        containing = [index for index, count in words_by_pair[pair].items() if count > 0]
        update_pair_statistics(pair, merge_pair(pair, words, containing), frequencies, words_by_pair)
        frequencies[pair] = 0
        if step % PRUNE_EVERY == 0:
            prune_stats(frequencies, all_frequencies, threshold)
            frequencies.build_index()


class PairFrequencies(defaultdict[Pair, int]):
    """Frequencies of pairs of symbols, with quick access to the most frequent one of at least `threshold`."""

    def __init__(self, frequencies: dict[Pair, int], threshold: float) -> None:
        super().__init__(int, frequencies)
        self.threshold = threshold
        self.build_index()

    def build_index(self) -> None:
        """Index the pairs by frequency."""
        self.pairs_by_frequency: dict[int, set[Pair]] = defaultdict(set)
        self.heap: list[int] = []  # the negated keys of pairs_by_frequency
        for pair, frequency in self.items():
            self._index(pair, frequency)

    def _index(self, pair: Pair, frequency: int) -> None:
        if frequency >= self.threshold:
            if frequency not in self.pairs_by_frequency:
                heappush(self.heap, -frequency)
            self.pairs_by_frequency[frequency].add(pair)

    def __setitem__(self, pair: Pair, frequency: int) -> None:
        super().__setitem__(pair, frequency)
        self._index(pair, frequency)

    def find_most_frequent(self) -> Pair | None:
        """Return the most frequent indexed pair, the last in the order of strings if there are several, or None."""
        while self.heap:
            frequency = -self.heap[0]
            candidates = {pair for pair in self.pairs_by_frequency[frequency] if self.get(pair) == frequency}
            if candidates:
                self.pairs_by_frequency[frequency] = candidates  # without those that have changed since
                return max(candidates)
            del self.pairs_by_frequency[heappop(self.heap) * -1]
        return None


def merge_pair(
    pair: Pair, words: list[tuple[Symbols, int]], indices: list[int]
) -> list[tuple[int, Symbols, Symbols, int]]:
    """Merge a pair of symbols in the words with these indices.

    Returns:
        For each of these words its index, its symbols after and before, and its count.
    """
    unmerged, merged = f" {pair[0]}  {pair[1]} ", f" {pair[0]}{pair[1]} "
    changes = []
    for index in indices:
        symbols, count = words[index]
        # With two spaces between symbols, occurrences of the pair in a row share no character.
        text = f" {'  '.join(symbols)} ".replace(unmerged, merged)
        words[index] = tuple(text[1:-1].split("  ")), count
        changes.append((index, words[index][0], symbols, count))
    return changes


def load_subword_nmt(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.codes; subwords that do not end a word end in @@."""
    return partial(_segment_subword_nmt, (folder / SUBWORD_NMT_FILE).read_text(encoding="utf-8"))


def _segment_subword_nmt(codes: str, lines: list[str]) -> list[str]:
    return list(map(_word_segmenter(codes), lines))


@lru_cache(1)
def _word_segmenter(codes: str) -> Callable[[str], str]:
    """Return a function that segments lines as subword-nmt does, which is called once for each frequent word."""
    from subword_nmt.apply_bpe import BPE

    bpe = BPE(io.StringIO(codes))

    @lru_cache(MAX_CACHED_WORDS)
    def segment_word(word: str) -> str:
        bpe.cache.clear()  # subword-nmt's own cache is not bounded
        return str(bpe.segment(word))

    return lambda line: " ".join([segment_word(word) for word in line.split(" ") if word])


def learn_sentencepiece(texts: Sequence[Path], vocab_size: int, folder: Path, advance: Advance) -> int:
    """Learn a BPE model of `vocab_size` pieces into `folder`/bpe.model.

    Text is not normalized (sentencepiece's default is NFKC), because output is scored against unnormalized references.

    Raises:
        UserError: the training set is too small, or has too many characters, for that vocabulary size.
    """
    import sentencepiece

    model = io.BytesIO()  # sentencepiece does not report a full disk
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(map(read_clean_lines, texts)),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            normalization_rule_name="identity",
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = re.sub(r"^.*\] ", "", str(error))
        raise UserError(f"sentencepiece cannot learn --vocab-size {vocab_size} pieces: {reason or 'too few'}") from None
    (folder / SENTENCEPIECE_FILE).write_bytes(model.getvalue())
    advance(vocab_size)
    return vocab_size


def load_sentencepiece(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.model; pieces that begin a word start with ▁."""
    import sentencepiece

    return partial(
        _segment_sentencepiece, sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_FILE))
    )


def _segment_sentencepiece(processor: "SentencePieceProcessor", lines: list[str]) -> list[str]:
    # One thread, because large files are split among processes already.
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=1)]


BPE_METHODS = {
    "subword-nmt": BpeMethod(learn_subword_nmt, load_subword_nmt, SUBWORD_NMT_FILE),
    "sentencepiece": BpeMethod(learn_sentencepiece, load_sentencepiece, SENTENCEPIECE_FILE),
}
