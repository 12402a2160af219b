"""Joint subword segmentation, learned on both sides of the training set together.

A `BpeMethod` learns its merges or model into a folder, and loads from that folder the function that rewrites lines into
lines of space-separated subwords.
"""

import io
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.corpora.parallel import count_words
from relumt.errors import UserError
from relumt.files import Advance, Rewrite, open_text, read_clean_lines

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
    from subword_nmt.learn_bpe import learn_bpe

    vocabulary = (f"{word} {count}" for word, count in count_words(texts).items())
    # It shows a progress bar of its own, and fails if there are only words of one letter.
    with open_text(folder / SUBWORD_NMT_FILE, "w") as codes, redirect_stderr(io.StringIO()), suppress(ValueError):
        learn_bpe(vocabulary, codes, merges, is_dict=True)
    learned = sum(1 for _ in read_clean_lines(folder / SUBWORD_NMT_FILE)) - 1
    if not learned:
        raise UserError("no pair of letters occurs twice in the training set, so there is no BPE; use --bpe none")
    advance(learned)
    return learned


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
        bpe.cache.clear()  # subword-nmt's own cache is not bounded, and half as fast
        return bpe.segment(word)

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

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_FILE))
    return partial(_segment_sentencepiece, processor)


def _segment_sentencepiece(processor: "SentencePieceProcessor", lines: list[str]) -> list[str]:
    # One thread, because large files are split among processes already.
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=1)]


BPE_METHODS = {
    "subword-nmt": BpeMethod(learn_subword_nmt, load_subword_nmt, SUBWORD_NMT_FILE),
    "sentencepiece": BpeMethod(learn_sentencepiece, load_sentencepiece, SENTENCEPIECE_FILE),
}
