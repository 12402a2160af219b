"""Joint subword segmentation, learnt on both sides of train together.

A `Kind` of segmentation learns its codes or model into a folder, and loads from there the function that
rewrites lines into lines of space-separated pieces.
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
class Kind:
    """A kind of segmentation.

    learn(texts, vocab_size, folder, advance) learns on the files `texts` and returns the size it reached;
    load(folder) returns the function that segments lines.
    """

    learn: Callable[[Sequence[Path], int, Path, Advance], int]
    load: Callable[[Path], Rewrite]


class MergeCounter:
    """The file that subword-nmt writes its merges to, one a call; advances the progress and counts them."""

    def __init__(self, file: IO[str], advance: Advance) -> None:
        self.file = file
        self.advance = advance
        self.merges = 0

    def write(self, text: str) -> None:
        """Write one line of codes."""
        self.file.write(text)
        if not text.startswith("#version"):
            self.merges += 1
            self.advance(1)


def learn_subword_nmt(texts: Sequence[Path], merges: int, folder: Path, advance: Advance) -> int:
    """Learn up to `merges` merges, as `subword-nmt learn-bpe -s merges`, into `folder`/bpe.codes.

    Returns how many were learnt: fewer when no pair occurs twice any more. Raises `UserError` if train
    has no pair of letters twice.
    """
    from subword_nmt.learn_bpe import learn_bpe

    if all(len(word) < 2 for line in _lines(texts) for word in line.split()):
        raise UserError("train has no word of two letters, so there is no BPE to learn; use --bpe none")
    with open_text(folder / "bpe.codes", "w") as file, contextlib.redirect_stderr(io.StringIO()):
        counter = MergeCounter(file, advance)
        learn_bpe(_lines(texts), counter, merges)
    if not counter.merges:
        raise UserError("in train no two letters stand together twice, so there is no BPE to learn; use --bpe none")
    return counter.merges


def load_subword_nmt(folder: Path) -> Rewrite:
    """Return the segmentation by `folder`/bpe.codes; pieces that a word goes on after end in @@."""
    from subword_nmt.apply_bpe import BPE

    with open_text(folder / "bpe.codes", "r") as file:
        return partial(_segment_subword_nmt, BPE(file))


def learn_sentencepiece(texts: Sequence[Path], vocab_size: int, folder: Path, advance: Advance) -> int:
    """Learn a BPE model of `vocab_size` pieces into `folder`/bpe.model.

    The identity normalisation: what is scored must be the characters of the reference, not their NFKC form.
    Raises `UserError` if train is too small or has too many characters for that vocabulary.
    """
    import sentencepiece

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(texts),
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
    "subword-nmt": Kind(learn_subword_nmt, load_subword_nmt),
    "sentencepiece": Kind(learn_sentencepiece, load_sentencepiece),
}


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    return chain.from_iterable(map(read_clean_lines, paths))


def _segment_subword_nmt(bpe: "BPE", lines: list[str]) -> list[str]:
    return [bpe.process_line(line) for line in lines]


def _segment_sentencepiece(processor: "SentencePieceProcessor", lines: list[str]) -> list[str]:
    # One thread: large files are shared out to processes already.
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=1)]
