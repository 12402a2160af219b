"""A tiny bitext, and the `relumt prepare` command on it."""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from relumt.cli import main

ANIMALS = {"Hund": "dog", "Katze": "cat", "Vogel": "bird", "Fisch": "fish", "Pferd": "horse"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "frisst": "eats", "wartet": "waits"}
PLACES = {"im Garten": "in the garden", "am See": "at the lake"}
PAIRS = [
    (f"Der {animal} {verb} {place}, sagt Jörg's Vater.", f"The {ANIMALS[animal]} {VERBS[verb]} {PLACES[place]}.")
    for animal in ANIMALS
    for verb in VERBS
    for place in PLACES
]
"""Forty sentences and their translations, with punctuation that a tokenizer splits off."""


@dataclass(frozen=True)
class Bitext:
    """A folder with train, valid and test in German and English."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "created" / "data-bin"

    def write(self, split: str, lines: list[tuple[str, str]]) -> None:
        for language, side in zip(("de", "en"), zip(*lines, strict=True), strict=True):
            self.path(split, language).write_bytes("".join(f"{line}\n" for line in side).encode())

    def path(self, split: str, language: str) -> Path:
        return self.folder / f"{split}.{language}"

    def arguments(self) -> list[str]:
        """The command line of `relumt prepare` without the command."""
        texts = [word for split in ("train", "valid", "test") for word in (f"--{split}", str(self.folder / split))]
        return ["--src", "de", "--tgt", "en", *texts, "--out", str(self.out)]

    def prepare(self, *options: str) -> None:
        """Run the command on the bitext; `options` come last and override its own."""
        main(["prepare", *self.arguments(), *options])


def write_bitext(folder: Path) -> Bitext:
    """Write forty training pairs; the first four are also valid, and the next three are also test."""
    folder.mkdir(exist_ok=True)
    bitext = Bitext(folder)
    bitext.write("train", PAIRS)
    bitext.write("valid", PAIRS[:4])
    bitext.write("test", PAIRS[4:7])
    return bitext


PIECES = [
    *"aZé5.,'`-\"()&|<[]?!:;%½²ﬁ日ſ٣…’‘„“”–—´‚«» ",
    *("Mr.", "z.B.", "No.", "Nr.", "u.s.", "...", "..", "DOT", "MULTI", "'s", "n't", "' ", "' '", "  ", "5,300", ",5"),
    *("5,", "word", "Wort", "\xad", "\u200b", "\x01", "\t", "\xa0", "nº", "\u0307", "Ⅷ", "कि", "@@", "</w>", "\\"),
]

awkward_lines = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
"""Lines of punctuation, abbreviations, numbers, and characters that a tokenizer may not know."""
