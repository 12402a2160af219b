"""Joint subword segmentation, learned on both sides of the training set together.

A `BpeMethod` learns its merges or model into a folder, and loads from that folder the function that rewrites lines into
lines of space-separated subwords.
"""

import gc
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.errors import UserError
from relumt.prep.word_counts import count_words
from relumt.text_files import Advance, Rewrite, open_text, read_clean_lines

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

SUBWORD_NMT_FILE, SENTENCEPIECE_FILE = "bpe.codes", "bpe.model"

MAX_CACHED_WORDS = 1 << 18
"""Bounds the memory of a process; about 60 MB."""


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
    from relumt.prep.merge_learning import learn_merges

    counts = count_words(texts)
    if max(map(len, counts), default=0) < 2:
        raise UserError("no word of the training set has two letters, so BPE has nothing to learn; use --bpe none")
    learned = 0
    with open_text(folder / SUBWORD_NMT_FILE, "w") as file, paused_garbage_collection():
        file.write("#version: 0.2\n")
        for first, second in learn_merges(counts, merges):
            file.write(f"{first} {second}\n")
            learned += 1
            advance(1)
    if not learned:
        raise UserError(
            "no pair of letters occurs twice in the training set, so BPE has nothing to learn; use --bpe none"
        )
    return learned


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause the search for reference cycles, which visits the millions of tuples of BPE's statistics again and again.

    They have no cycles; it takes a fifth of the time of learning.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_subword_nmt(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.codes; subwords that do not end a word end in @@."""
    return partial(_segment_subword_nmt, (folder / SUBWORD_NMT_FILE).read_text(encoding="utf-8"))


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
            sentence_iterator=_read_all_lines(texts),
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

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_FILE))
    return partial(_segment_sentencepiece, processor)


BPE_METHODS = {
    "subword-nmt": BpeMethod(learn_subword_nmt, load_subword_nmt, SUBWORD_NMT_FILE),
    "sentencepiece": BpeMethod(learn_sentencepiece, load_sentencepiece, SENTENCEPIECE_FILE),
}


def _read_all_lines(paths: Sequence[Path]) -> Iterator[str]:
    return chain.from_iterable(map(read_clean_lines, paths))


def _segment_subword_nmt(codes: str, lines: list[str]) -> list[str]:
    return list(map(_word_segmenter(codes).segment, lines))


@lru_cache(1)
def _word_segmenter(codes: str) -> "WordSegmenter":
    return WordSegmenter(codes)


class WordSegmenter:
    """Segments lines with subword-nmt, which is called once for each of the most frequent words.

    Args:
        codes: content of the file of merges.
    """

    def __init__(self, codes: str) -> None:
        from subword_nmt.apply_bpe import BPE

        self.bpe = BPE(io.StringIO(codes))
        self.segment_word = lru_cache(MAX_CACHED_WORDS)(self._segment_word)

    def segment(self, line: str) -> str:
        """Return the subwords of a line, separated by spaces, as `BPE.process_line` does."""
        if line.startswith(" ") or line.endswith(" "):  # spaces around a line are kept
            return str(self.bpe.process_line(line))
        return " ".join([self.segment_word(word) for word in line.split(" ") if word])

    def _segment_word(self, word: str) -> str:
        self.bpe.cache.clear()  # subword-nmt's own cache is not bounded
        return str(self.bpe.segment(word))


def _segment_sentencepiece(processor: "SentencePieceProcessor", lines: list[str]) -> list[str]:
    # One thread, because large files are split among processes already.
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=1)]
