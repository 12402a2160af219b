"""Multi30k German–English: image captions, published in tokenized and lowercased form, tested on test_2016_flickr.

Small enough to train on a CPU: the preset `small` uses it in place of the papers' corpora.
"""

from pathlib import Path

from relumt.atomic_output import StagingArea
from relumt.prep.bitext import side_paths
from relumt.prep.corpora.corpus import Corpus, copy_normalized
from relumt.prep.corpora.published_text import ParallelText, parallel_files

LANGUAGES = ("de", "en")
TEXTS = {
    "train": parallel_files("train.lc.norm.tok.{}", LANGUAGES),
    "valid": parallel_files("val.lc.norm.tok.{}", LANGUAGES),
    "test": parallel_files("test_2016_flickr.lc.norm.tok.{}", LANGUAGES),
}


class Multi30k(Corpus):
    """Captions of 29,000 images, as published."""

    languages = LANGUAGES
    bpe_merges = 8_000
    lowercased = True
    max_ratio = 9.0

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return list(TEXTS.values())

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        for split, texts in TEXTS.items():
            copy_normalized(texts, raw, side_paths(stage.result, split, self.languages))
