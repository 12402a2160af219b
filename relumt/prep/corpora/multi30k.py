"""Multi30k German–English: image captions, tokenised and in lower case as their makers publish them, tested on 2016's.

Small enough to train on a CPU: what stands for the papers' corpora in the preset small.
"""

from pathlib import Path

from relumt.prep.corpora.corpus import Corpus, copy_normalised, each
from relumt.prep.corpora.download import Source, fetch
from relumt.prep.progress import Steps
from relumt.text_files import read_lines

PUBLISHED = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/tok/{}"
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
CHECKSUMS = {
    ("train", "de"): "sha256:cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    ("train", "en"): "sha256:08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    ("valid", "de"): "sha256:97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    ("valid", "en"): "sha256:46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    ("test", "de"): "sha256:c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    ("test", "en"): "sha256:5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
}


class Multi30k(Corpus):
    """Captions of 29,000 images; as published, nothing is cleaned away."""

    languages = ("de", "en")
    merges = 8_000
    lowercased = True
    max_ratio = 9.0

    def files(self, raw: Path, steps: Steps) -> list[Path]:
        """See Corpus."""
        return [
            fetch(Source(name, (PUBLISHED.format(name),), CHECKSUMS[split, language]), raw, steps)
            for split in NAMES
            for language in self.languages
            for name in [self.name_of(split, language)]
        ]

    def write(self, raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """See Corpus."""
        for split in NAMES:
            for language, path in zip(self.languages, each(folder, split, self.languages), strict=True):
                copy_normalised(read_lines(raw / self.name_of(split, language)), path)

    def name_of(self, split: str, language: str) -> str:
        """Of the published file."""
        return f"{NAMES[split]}.lc.norm.tok.{language}"
