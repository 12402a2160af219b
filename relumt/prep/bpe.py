"""Joint subword segmentation, learned on both sides of the training set together.

A `BpeMethod` learns its merges or model into a folder, and loads from that folder the function that rewrites lines into
lines of space-separated subwords.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from relumt.errors import UserError
from relumt.text_files import Advance, Rewrite, open_text, read_clean_lines

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor
    from subword_nmt.apply_bpe import BPE


@dataclass(frozen=True)
class BpeMethod:
    """A subword segmentation method.

    Attributes:
        learn: called as learn(texts, vocab_size, folder, advance), learns on the files `texts` and returns the
            vocabulary size that it reached.
        load: called as load(folder), returns the function that segments lines.
    """

    learn: Callable[[Sequence[Path], int, Path, Advance], int]
    load: Callable[[Path], Rewrite]


class MergeCounter:
    """The file object that subword-nmt writes one merge per call to; counts merges and advances a progress bar."""

    def __init__(self, file: IO[str], advance: Advance) -> None:
        self.file = file
        self.advance = advance
        self.merges = 0

    def write(self, text: str) -> None:
        """Write one line."""
        self.file.write(text)
        if not text.startswith("#version"):
            self.merges += 1
            self.advance(1)


def learn_subword_nmt(texts: Sequence[Path], merges: int, folder: Path, advance: Advance) -> int:
    """Learn up to `merges` merges into `folder`/bpe.codes, as `subword-nmt learn-bpe -s merges` does.

    Returns:
        The number of merges learned: fewer than `merges` if no pair of symbols occurs twice any more.

    Raises:
        UserError: no merge can be learned.
    """
    from subword_nmt.learn_bpe import learn_bpe

    if all(len(word) < 2 for line in _read_all_lines(texts) for word in line.split()):
        raise UserError("no word of the training set has two letters, so BPE has nothing to learn; use --bpe none")
    # learn_bpe reports its progress on stderr, where it would break the progress bar.
    with open_text(folder / "bpe.codes", "w") as file, contextlib.redirect_stderr(io.StringIO()):
        counter = MergeCounter(file, advance)
        learn_bpe(_read_all_lines(texts), counter, merges)
    if not counter.merges:
        raise UserError(
            "no pair of letters occurs twice in the training set, so BPE has nothing to learn; use --bpe none"
        )
    return counter.merges


def load_subword_nmt(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.codes; subwords that do not end a word end in @@."""
    from subword_nmt.apply_bpe import BPE

    with open_text(folder / "bpe.codes", "r") as file:
        return partial(_segment_subword_nmt, BPE(file))


def learn_sentencepiece(texts: Sequence[Path], vocab_size: int, folder: Path, advance: Advance) -> int:
    """Learn a BPE model of `vocab_size` pieces into `folder`/bpe.model.

    Text is not normalized (sentencepiece's default is NFKC), because output is scored against unnormalized references.

    Raises:
        UserError: the training set is too small, or has too many characters, for that vocabulary size.
    """
    import sentencepiece

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_read_all_lines(texts),
            model_prefix=str(folder / "bpe"),
            model_type="bpe",
            vocab_size=vocab_size,
            normalization_rule_name="identity",
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = re.sub(r"^.*\] ", "", str(error))
        raise UserError(f"sentencepiece cannot learn --vocab-size {vocab_size} pieces: {reason or 'too few'}") from None
    advance(vocab_size)
    return vocab_size


def load_sentencepiece(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.model; pieces that begin a word start with ▁."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "bpe.model"))
    return partial(_segment_sentencepiece, processor)


BPE_METHODS = {
    "subword-nmt": BpeMethod(learn_subword_nmt, load_subword_nmt),
    "sentencepiece": BpeMethod(learn_sentencepiece, load_sentencepiece),
}


def _read_all_lines(paths: Sequence[Path]) -> Iterator[str]:
    return chain.from_iterable(map(read_clean_lines, paths))


def _segment_subword_nmt(bpe: "BPE", lines: list[str]) -> list[str]:
    return [bpe.process_line(line) for line in lines]


def _segment_sentencepiece(processor: "SentencePieceProcessor", lines: list[str]) -> list[str]:
    # One thread, because large files are split among processes already.
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=1)]
