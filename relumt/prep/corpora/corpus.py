"""The interface of a corpus, and the steps that corpora share.

A corpus writes the texts from which `relumt prepare` builds the data-bin: train, valid and test, tokenized, as
NAME.LANGUAGE; NAME.docs if documents are known; and the untokenized test set, for scoring, as test.raw.LANGUAGE.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path

from relumt.atomic_output import StagingArea
from relumt.prep.bitext import PathPair, check_line_counts, clean_pairs, side_paths
from relumt.prep.corpora.published_text import ParallelText
from relumt.prep.progress import progress_step
from relumt.prep.tokenization import normalize_punctuation, tokenize
from relumt.prep.workers import Rewriting, rewrite_files
from relumt.text_files import normalize_line, open_text, write_lines


class Corpus(ABC):
    """A corpus of the papers.

    Attributes:
        languages: language codes, source first.
        bpe_merges: default number of joint BPE merges.
        lowercased: whether its texts are lowercased.
        punctuation_normalized: whether the source is read with normalized punctuation.
        max_length: maximum number of words of a training sentence.
        max_ratio: maximum ratio between the numbers of words of the two sides of a training pair.
        separator: a word to add to the dictionaries, for use between the sentences of a document, or None.
    """

    languages: tuple[str, str]
    bpe_merges: int
    lowercased: bool = False
    punctuation_normalized: bool = True
    max_length: int = 250
    max_ratio: float = 1.5
    separator: str | None = None

    @abstractmethod
    def published_texts(self, raw: Path) -> Iterable[ParallelText]:
        """Return every text that the corpus is made from, given the files that are in `raw` already."""

    @abstractmethod
    def write(self, raw: Path, stage: StagingArea) -> None:
        """Write the corpus to `stage.result`; raise `UserError` if its files in `raw` are invalid."""

    def settings(self) -> dict[str, str | int | float | bool | None]:
        """Return what the user chose about the corpus, for the record."""
        return {}

    def download(self, raw: Path) -> list[Path]:
        """Download what is missing in `raw`; return all files that the corpus is made from."""
        texts = [text for pair in self.published_texts(raw) for text in pair]
        return sorted({path for text in texts for path in text.fetch(raw)})

    @staticmethod
    def preprocess(lines: list[str], language: str) -> list[str]:
        """Rewrite lines as the model is to read them: here with normalized punctuation and tokenized."""
        return tokenize(normalize_punctuation(lines, language), language)

    def preprocess_and_clean(self, texts: PathPair, outputs: PathPair, stage: StagingArea) -> list[bool]:
        """Preprocess the training texts and drop unfit pairs; return for each pair whether it was kept."""
        tokenized = side_paths(stage.scratch, "tokenized", self.languages)
        with texts[0].open("rb") as file:
            num_lines = sum(1 for _ in file)
        rewritings = [
            Rewriting(text, output, partial(self.preprocess, language=language))
            for language, text, output in zip(self.languages, texts, tokenized, strict=True)
        ]
        with progress_step("tokenize train", 2 * num_lines) as advance:
            rewrite_files(rewritings, advance)
        kept, _ = clean_pairs(tokenized, outputs, self.max_length, self.max_ratio)
        return kept

    def write_held_out(self, name: str, sides: tuple[list[str], list[str]], folder: Path) -> None:
        """Write valid or test, untokenized and tokenized.

        The source is preprocessed as in training. The target, which output is scored against, keeps its punctuation.
        """
        source, target = ([normalize_line(line) for line in lines] for lines in sides)
        for path, lines in zip(side_paths(folder, f"{name}.raw", self.languages), (source, target), strict=True):
            write_lines(path, lines)
        source_path, target_path = side_paths(folder, name, self.languages)
        write_lines(source_path, self.preprocess(source, self.languages[0]))
        write_lines(target_path, tokenize(target, self.languages[1]))


def copy_normalized(texts: ParallelText, raw: Path, outputs: PathPair, limit: int | None = None) -> None:
    """Append the normalized lines of a parallel text, at most `limit` per side, to the files `outputs`.

    Raises:
        UserError: a side is empty, or the sides differ in their number of lines.
    """
    counts = []
    with progress_step(f"read {texts[0].path}") as advance:
        for text, output in zip(texts, outputs, strict=True):
            with open_text(output, "a") as file:
                count = 0
                for line in islice(text.lines(raw), limit):
                    file.write(normalize_line(line.removesuffix("\n")) + "\n")
                    count += 1
                    advance(1)
            counts.append(count)
    check_line_counts((texts[0].path, texts[1].path), counts, lambda side: islice(texts[side].lines(raw), limit))
