"""A tiny bitext and the `relumt prepare` command on it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from relumt.cli import main

ANIMALS = {"Hund": "dog", "Katze": "cat", "Vogel": "bird", "Fisch": "fish", "Pferd": "horse"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "frisst": "eats", "wartet": "waits"}
PLACES = {"im Garten": "in the garden", "am See": "at the lake"}


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """Forty sentences and their translations, with punctuation that a tokeniser splits off."""
    return [
        (f"Der {animal} {verb} {place}, sagt Jörg's Vater.", f"The {ANIMALS[animal]} {VERBS[verb]} {PLACES[place]}.")
        for animal in ANIMALS
        for verb in VERBS
        for place in PLACES
    ]


@dataclass(frozen=True)
class Bitext:
    """A folder with train, valid and test in German and English."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "made" / "data-bin"

    def write(self, split: str, lines: list[tuple[str, str]]) -> None:
        for language, side in zip(("de", "en"), zip(*lines, strict=True), strict=True):
            self.path(split, language).write_bytes("".join(f"{line}\n" for line in side).encode())

    def path(self, split: str, language: str) -> Path:
        return self.folder / f"{split}.{language}"

    def prepare(self, *options: str) -> None:
        """Run the command on the bitext; its own options come first, so `options` can override them."""
        texts = [word for split in ("train", "valid", "test") for word in (f"--{split}", str(self.folder / split))]
        main(["prepare", "--src", "de", "--tgt", "en", *texts, "--out", str(self.out), *options])


@pytest.fixture(scope="session")
def write_bitext(pairs: list[tuple[str, str]]) -> Callable[[Path], Bitext]:
    """The function that writes forty pairs of train, four of which are valid too and three test."""

    def write(folder: Path) -> Bitext:
        folder.mkdir(exist_ok=True)
        bitext = Bitext(folder)
        bitext.write("train", pairs)
        bitext.write("valid", pairs[:4])
        bitext.write("test", pairs[4:7])
        return bitext

    return write


@pytest.fixture
def bitext(tmp_path: Path, write_bitext: Callable[[Path], Bitext]) -> Bitext:
    return write_bitext(tmp_path)
