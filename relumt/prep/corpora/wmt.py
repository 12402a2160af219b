"""The news translation tasks of WMT that the papers train on; wmt.toml lists their texts.

Training pairs have normalized punctuation and at most 250 words per side; neither side is more than 1.5 times as long
as the other. Validation uses the test set of the year before ([RL] §5, [RF] A.2); the test sets are sacreBLEU's.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from sacrebleu.dataset import DATASETS

from relumt.atomic_output import StagingArea
from relumt.data.document_lengths import write_lengths
from relumt.prep.bitext import check_line_counts, side_paths
from relumt.prep.corpora.corpus import Corpus, copy_normalized
from relumt.prep.corpora.published_text import ParallelText, PublishedText
from relumt.prep.corpora.sgml import document_lengths, parse_segments
from relumt.prep.corpora.sources import SOURCES, Source


@dataclass(frozen=True)
class Wmt(Corpus):
    """A language pair of one year.

    Attributes:
        languages: language codes, source first.
        train: the training texts, in order.
        valid, test: sacreBLEU's names of the evaluation sets ("wmt14/full").
        max_ratio: see Corpus; larger if one language is written without spaces.
        bpe_merges: see Corpus.
    """

    languages: tuple[str, str]
    train: tuple[ParallelText, ...]
    valid: str
    test: str
    max_ratio: float = 1.5
    bpe_merges: int = 32_000

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [*self.train, self.evaluation_set(self.valid), self.evaluation_set(self.test)]

    def evaluation_set(self, name: str) -> ParallelText:
        """Return sacreBLEU's evaluation set of that name."""
        dataset = DATASETS[name]
        assert dataset.data and dataset.md5, "sacreBLEU has the URLs and checksums of WMT's sets"
        archive = Source(f"{name.replace('/', '-')}.tgz", tuple(dataset.data), f"md5:{dataset.md5[0]}")
        source, target = dataset.langpairs["-".join(self.languages)]
        return PublishedText(archive, source), PublishedText(archive, target)

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        self.write_evaluation_set("valid", self.evaluation_set(self.valid), raw, stage.result)
        self.write_evaluation_set("test", self.evaluation_set(self.test), raw, stage.result)
        combined = side_paths(stage.scratch, "combined", self.languages)
        for texts in self.train:
            copy_normalized(texts, raw, combined)
        self.preprocess_and_clean(combined, side_paths(stage.result, "train", self.languages), stage)

    def write_evaluation_set(self, name: str, texts: ParallelText, raw: Path, folder: Path) -> None:
        """Write valid or test, and its documents."""
        source, target = (parse_segments(text.lines(raw), str(text.path)) for text in texts)
        sides = [segment.text for segment in source], [segment.text for segment in target]
        check_line_counts((texts[0].path, texts[1].path), list(map(len, sides)), lambda side: sides[side])
        self.write_held_out(name, sides, folder)
        write_lengths(folder / f"{name}.docs", document_lengths(source))


def load_wmt() -> dict[str, Wmt]:
    """Return the corpora in wmt.toml by name."""
    table = tomllib.loads((files(__package__) / "wmt.toml").read_text(encoding="utf-8"))
    return {name: parse_wmt(**fields) for name, fields in table.items()}


def parse_wmt(languages: Sequence[str], train: Sequence[dict[str, Any]], **fields: Any) -> Wmt:
    """Return the corpus that a table of wmt.toml describes."""
    source, target = languages
    texts = [parse_text(**{"languages": languages} | text) for text in train]
    return Wmt((source, target), tuple(texts), **fields)


def parse_text(
    source: str, member: str, languages: Sequence[str], separator: str | None = None, columns: Sequence[int] = (0, 1)
) -> ParallelText:
    """Return the training text that an entry of wmt.toml describes."""
    source_side, target_side = (
        PublishedText(SOURCES[source], member.format(language), separator, column)
        for language, column in zip(languages, columns, strict=True)
    )
    return source_side, target_side
