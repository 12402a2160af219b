"""What a corpus is, and the steps that all of them share: from texts as published to tokenised, cleaned ones.

A corpus writes train, valid and test, tokenised, as NAME.LANGUAGE; NAME.docs where documents are known; and for what is
scored against, test.raw.LANGUAGE as published.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from relumt.prep.bitext import check_line_counts, clean_pairs
from relumt.prep.progress import Steps
from relumt.prep.tokenization import normalize_punctuation, tokenize
from relumt.text_files import (
    Rewrite,
    normalize_line,
    num_processes,
    open_text,
    read_clean_lines,
    rewrite_file,
    write_lines,
)

Pair = tuple[Path, Path]  # of files, source first


class Corpus(ABC):
    """A corpus of the papers.

    Attributes:
        languages: codes, source first.
        merges: of joint BPE, unless asked otherwise.
        lowercased: its texts are put into lower case.
        max_length: words that a sentence of train may have.
        max_ratio: how many times longer than the other one side of a pair of train may be.
        separator: a word for the dictionaries to stand between the sentences of a document, None for none.
    """

    languages: tuple[str, str]
    merges: int
    lowercased: bool = False
    max_length: int = 250
    max_ratio: float = 1.5
    separator: str | None = None

    @abstractmethod
    def files(self, raw: Path, steps: Steps) -> list[Path]:
        """Every file that it is made of, downloaded into `raw` where missing; raises UserError if that fails."""

    @abstractmethod
    def write(self, raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """Write the texts to `folder`; `scratch` is for files between. Raises UserError for texts that do not fit."""

    def switches(self) -> dict[str, object]:
        """What was chosen about it, for the record."""
        return {}


def each(folder: Path, name: str, languages: Sequence[str]) -> Pair:
    """The two files NAME.LANGUAGE."""
    source, target = (folder / f"{name}.{language}" for language in languages)
    return source, target


def copy_normalised(lines: Iterable[str], path: Path, advance: Callable[[int], object] = lambda _: None) -> int:
    """Write lines with plain spaces and without invisible characters; returns their number."""
    count = 0
    with open_text(path, "w") as output:
        for line in lines:
            output.write(normalize_line(line) + "\n")
            count += 1
            advance(1)
    return count


def tokenise_and_clean(
    texts: Pair, rewrites: tuple[Rewrite, Rewrite], corpus: Corpus, scratch: Path, steps: Steps
) -> tuple[Pair, list[bool]]:
    """Rewrite both sides of train and drop its useless pairs.

    Returns:
        The cleaned files, and for each pair whether it was kept.
    """
    counts = [sum(1 for _ in path.open("rb")) for path in texts]
    check_line_counts(texts, counts, lambda side: read_clean_lines(texts[side]))
    tokenised, cleaned = (each(scratch, name, corpus.languages) for name in ("tokenised", "cleaned"))
    for source, target, rewrite in zip(texts, tokenised, rewrites, strict=True):
        with steps.step(f"tokenise train{source.suffix}", counts[0]) as advance:
            rewrite_file(source, target, rewrite, num_processes(counts[0]), advance)
    with steps.step("clean train", counts[0]):
        kept, dropped = clean_pairs(tokenised, cleaned, corpus.max_length, corpus.max_ratio)
    reasons = "".join(f", {count} {objection}" for objection, count in dropped.items())
    steps.say(f"dropped {dropped.total()} of {len(kept)} pairs of train{reasons}")
    return cleaned, kept


def punctuated_and_tokenised(lines: list[str], language: str) -> list[str]:
    """Lines with plain punctuation, tokenised: what a model reads of a corpus in several spellings."""
    return tokenize(normalize_punctuation(lines, language), language)


def rewrites_of_train(languages: Sequence[str]) -> tuple[Rewrite, Rewrite]:
    """How each side of train is rewritten."""
    source, target = (partial(punctuated_and_tokenised, language=language) for language in languages)
    return source, target


def write_held_out(name: str, sides: tuple[list[str], list[str]], languages: Sequence[str], folder: Path) -> None:
    """Write valid or test: tokenised, and as published.

    The source's punctuation is made plain, as the model's is in training; what is scored against stays as it is.
    """
    source, target = ([normalize_line(line) for line in lines] for lines in sides)
    for path, lines in zip(each(folder, f"{name}.raw", languages), (source, target), strict=True):
        write_lines(path, lines)
    to_read, to_score = each(folder, name, languages)
    write_lines(to_read, punctuated_and_tokenised(source, languages[0]))
    write_lines(to_score, tokenize(target, languages[1]))
