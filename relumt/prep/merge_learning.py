"""Learning of BPE merges, with the result of subword-nmt's `learn_bpe` in a fraction of its time.

The statistics are subword-nmt's. For each merge, it compares all pairs of symbols to find the most frequent one, and
searches words with a regular expression; here pairs are indexed by frequency, and words are searched as strings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from subword_nmt.learn_bpe import get_pair_statistics, prune_stats, update_pair_statistics

Pair = tuple[str, str]
Symbols = tuple[str, ...]
Word = tuple[Symbols, int]
"""The symbols of a word, and its count."""

MIN_FREQUENCY = 2
"""A pair that occurs once is not merged."""

PRUNE_EVERY = 100
"""Number of merges between two removals of rare pairs."""


class PairFrequencies(defaultdict[Pair, int]):
    """Frequencies of pairs of symbols, with quick access to the most frequent one.

    Only pairs that are at least as frequent as `threshold` are indexed.
    """

    def __init__(self, frequencies: dict[Pair, int]) -> None:
        super().__init__(int, frequencies)
        self.threshold = 0.0
        self.pairs_by_frequency: dict[int, set[Pair]] = {}
        self.heap: list[int] = []  # the negated keys of pairs_by_frequency

    def build_index(self, threshold: float) -> None:
        """Index the pairs of at least this frequency."""
        self.threshold = threshold
        self.pairs_by_frequency = {}
        for pair, frequency in self.items():
            if frequency >= threshold:
                self.pairs_by_frequency.setdefault(frequency, set()).add(pair)
        self.heap = [-frequency for frequency in self.pairs_by_frequency]
        heapify(self.heap)

    def __setitem__(self, pair: Pair, frequency: int) -> None:
        super().__setitem__(pair, frequency)
        if frequency >= self.threshold:
            if frequency not in self.pairs_by_frequency:
                self.pairs_by_frequency[frequency] = set()
                heappush(self.heap, -frequency)
            self.pairs_by_frequency[frequency].add(pair)

    def find_most_frequent(self) -> Pair | None:
        """Return the most frequent indexed pair, the last in the order of strings if there are several, or None."""
        while self.heap:
            frequency = -self.heap[0]
            candidates = self.pairs_by_frequency[frequency]
            candidates = {pair for pair in candidates if self.get(pair) == frequency}  # others have changed since
            if candidates:
                self.pairs_by_frequency[frequency] = candidates
                return max(candidates)
            del self.pairs_by_frequency[frequency]
            heappop(self.heap)
        return None


def learn_merges(word_counts: Counter[str], num_merges: int) -> Iterator[Pair]:
    """Yield up to `num_merges` merges, the most frequent pair of symbols first.

    The pairs, and when rare ones are set aside, are subword-nmt's: a pair that has been set aside and reappears is
    counted from 0, which affects the result.
    """
    counted = [((*word[:-1], word[-1] + "</w>"), count) for word, count in word_counts.items()]
    words = sorted(counted, key=lambda item: item[1], reverse=True)
    all_frequencies, words_by_pair = get_pair_statistics(words)
    frequencies = PairFrequencies(all_frequencies)
    threshold = max(frequencies.values(), default=0) / 10
    frequencies.build_index(threshold)
    for step in range(num_merges):
        pair = frequencies.find_most_frequent()
        if pair is None:
            prune_stats(frequencies, all_frequencies, threshold)
            frequencies = PairFrequencies(all_frequencies)
            highest = max(frequencies.values(), default=0)
            threshold = highest * step / (step + 10_000)
            prune_stats(frequencies, all_frequencies, threshold)
            frequencies.build_index(threshold)
            pair = frequencies.find_most_frequent()
        if pair is None or frequencies[pair] < MIN_FREQUENCY:
            return
        yield pair
        containing = [index for index, count in words_by_pair[pair].items() if count > 0]
        changes = merge_pair(pair, words, containing)
        update_pair_statistics(pair, changes, frequencies, words_by_pair)
        frequencies[pair] = 0
        if step % PRUNE_EVERY == 0:
            prune_stats(frequencies, all_frequencies, threshold)
            frequencies.build_index(threshold)


def merge_pair(pair: Pair, words: list[Word], indices: list[int]) -> list[tuple[int, Symbols, Symbols, int]]:
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
        new_symbols = tuple(text[1:-1].split("  "))
        words[index] = (new_symbols, count)
        changes.append((index, new_symbols, symbols, count))
    return changes
