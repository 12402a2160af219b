"""Test sets by sacreBLEU's names, from its cache or downloaded into it: source, first reference and documents.

The cache is ~/.sacrebleu, or the folder that the environment variable SACREBLEU names.
"""

import logging
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.utils import SACREBLEU_DIR

from relumt.atomic_output import StagingArea
from relumt.console import print_status
from relumt.data.document_lengths import write_lengths
from relumt.errors import AttemptFailedError, UserError, describe_error
from relumt.prep.bitext import check_line_counts, check_no_empty_line, side_paths
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.published_text import ParallelText
from relumt.text_files import load_text

DOCUMENT_IDS = "docid"
"""sacreBLEU's name of the field that says which document a line belongs to."""

TIMEOUT = 30
"""Seconds without a byte after which a download fails."""


@dataclass(frozen=True)
class SacrebleuSet(Corpus):
    """A test set without training text.

    Attributes:
        name: sacreBLEU's name, for example "wmt14/full".
        languages: language codes, source first.
    """

    name: str
    languages: tuple[str, str]

    @property
    def language_pair(self) -> str:
        """The languages as sacreBLEU writes them, for example "en-de"."""
        return "-".join(self.languages)

    @property
    def dataset(self) -> Dataset:
        """What sacreBLEU knows about the test set."""
        return DATASETS[self.name]

    @property
    def cache(self) -> Path:
        """The folder of the test set in sacreBLEU's cache."""
        return Path(SACREBLEU_DIR) / self.name

    def published_texts(self, raw: Path) -> Iterable[ParallelText]:
        """See Corpus; sacreBLEU has its own cache instead of `raw`."""
        return []

    def settings(self) -> dict[str, str | int | float | bool | None]:
        """See Corpus."""
        return {"test": self.name, "language_pair": self.language_pair}

    def download(self, raw: Path) -> list[Path]:
        """See Corpus; return source, reference and, if documents are known, their identifiers."""
        with sacrebleu_errors(self.name, self.cache):
            files = dict(
                zip(
                    self.dataset.fieldnames(self.language_pair), self.dataset.get_files(self.language_pair), strict=True
                )
            )
            references = self.dataset.get_reference_files(self.language_pair)
        if not references:
            raise UserError(f"--test {self.name}: sacreBLEU has no reference for {self.language_pair}")
        if len(references) > 1:
            print_status(f"{self.name} has {len(references)} references; taking the first, {Path(references[0]).name}")
        paths = [files["src"], references[0], *([files[DOCUMENT_IDS]] if DOCUMENT_IDS in files else [])]
        return list(map(Path, paths))

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        self.write_as_test_set(self, raw, stage.result)

    def write_as_test_set(self, corpus: Corpus, raw: Path, folder: Path) -> None:
        """Write this test set with its documents, preprocessed as `corpus` is, in place of another one in `folder`.

        Raises:
            UserError: the files in sacreBLEU's cache are damaged.
        """
        for path in folder.glob("test.*"):
            path.unlink()
        source, target, *identifiers = self.download(raw)
        sides = load_text(source), load_text(target)
        check_line_counts((source, target), list(map(len, sides)), lambda side: sides[side])
        corpus.write_held_out("test", sides, folder)
        for text, original in zip(side_paths(folder, "test.raw", self.languages), (source, target), strict=True):
            check_no_empty_line(text, original)
        for path in identifiers:
            lengths = [len(list(lines)) for _, lines in groupby(load_text(path))]
            if sum(lengths) != len(sides[0]):
                raise UserError(
                    f"{path} has {sum(lengths)} lines, {source} has {len(sides[0])}; delete {self.cache} to download "
                    "it again"
                )
            for name in ("test", "test.raw"):
                write_lengths(folder / f"{name}.docs", lengths)
        valid, valid_raw = (side_paths(folder, name, self.languages) for name in ("valid", "valid.raw"))
        # `relumt prepare` takes raw texts of both valid and test, or of none, as for Multi30k.
        if valid[0].exists() and not valid_raw[0].exists():
            for path in folder.glob("test.raw.*"):
                path.unlink()


def find_test_set(name: str, language_pair: str | None) -> SacrebleuSet:
    """Return a test set of sacreBLEU; `language_pair` may be None if it has only one.

    Raises:
        UserError: there is no such test set, or it does not have the language pair.
    """
    if name not in DATASETS:
        similar = get_close_matches(name, DATASETS, cutoff=0) or list(DATASETS)
        raise UserError(f"--test {name!r}: not a test set of sacreBLEU; choose another, such as {', '.join(similar)}")
    pairs = sorted(DATASETS[name].langpairs)
    if language_pair is None and len(pairs) == 1:
        language_pair = pairs[0]
    if language_pair is None or language_pair not in pairs:
        raise UserError(
            f"--test {name}: expected one of its language pairs ({', '.join(pairs)}), found "
            f"{language_pair or 'none'}; give --language-pair"
        )
    source, target = language_pair.split("-")
    return SacrebleuSet(name, (source, target))


@contextmanager
def sacrebleu_errors(name: str, cache: Path) -> Iterator[None]:
    """Turn whatever sacreBLEU raises or logs while it downloads and reads a test set into one line.

    It ends the process after a wrong checksum, and each format of a test set has its own errors.

    Raises:
        AttemptFailedError: the test set is neither in the cache nor can it be downloaded, or it is damaged.
    """
    logger, timeout = logging.getLogger("sacrebleu"), socket.getdefaulttimeout()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = "another checksum, or no secure connection" if isinstance(error, SystemExit) else describe_error(error)
        raise AttemptFailedError(
            f"{name}: not in sacreBLEU's cache {cache}, or damaged there, and it cannot be downloaded ({reason}); "
            "connect to the network and delete that folder, or copy it from another machine's cache"
        ) from None
    finally:
        logger.setLevel(level)
        socket.setdefaulttimeout(timeout)
