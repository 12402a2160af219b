"""ContraPro (Müller et al. 2018, github.com/ZurichNLP/ContraPro) as examples: English-German pronouns.

contrapro.json has the sentences. Their contexts are in the documents of OpenSubtitles, which setup_opensubs.sh
downloads, or in the files that json2text_and_context.pl writes from them: contrapro.text.LANGUAGE with a line per
variant, and contrapro.context.LANGUAGE with the same number of lines before each.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from relumt.errors import UserError, quote
from relumt.prep.contrastive.example import ExampleInContext
from relumt.text_files import read_lines

NO_CONTEXT = {("", ""), ("null", "null")}
"""Source and target line in place of a sentence before the first of a document, by version of the authors' script."""

ANTECEDENT = {True: "in the sentence", False: "before the sentence", None: "unknown"}


class Error(msgspec.Struct):
    """A wrong variant of a reference."""

    contrastive: str


class Entry(msgspec.Struct, rename=lambda name: name.replace("_", " ")):
    """A sentence of contrapro.json; the keys have spaces instead of underscores."""

    document_id: str
    segment_id: Annotated[int, msgspec.Meta(ge=1)]
    src_segment: str
    ref_segment: str
    src_pronoun: str
    ref_pronoun: str
    errors: list[Error]
    ante_distance: int | None = None
    intrasegmental: bool | None = None

    def to_example(self, context: Sequence[tuple[str, str]]) -> ExampleInContext:
        """Return the example; `context` has the source and target sentences before it.

        Raises:
            ValueError: the variants are not valid.
        """
        known = self.ante_distance is not None and self.ante_distance >= 0
        return ExampleInContext(
            source=self.src_segment,
            target=self.ref_segment,
            wrong=[error.contrastive for error in self.errors],
            source_context=[source for source, _ in context],
            target_context=[target for _, target in context],
            distance=self.ante_distance if known else None,
            categories={
                "pronouns": f"{self.src_pronoun}:{self.ref_pronoun}".lower(),
                "antecedent": ANTECEDENT[self.intrasegmental],
            },
        )


class Documents:
    """The documents of OpenSubtitles: FOLDER/YEAR/NAME.LANGUAGE, a sentence per line, aligned.

    Args:
        folder: their folder.
        languages: language codes, source first.
    """

    def __init__(self, folder: Path, languages: tuple[str, str]) -> None:
        self.folder = folder
        self.languages = languages
        self.paths: dict[str, list[Path]] = defaultdict(list)
        for path in sorted(folder.glob(f"*/*.{languages[1]}")):
            self.paths[path.name].append(path)
        if not self.paths:
            raise UserError(f"{folder}: has no YEAR/NAME.{languages[1]}; run setup_opensubs.sh of ContraPro")
        self._read: tuple[Path, list[tuple[str, str]]] = (Path(), [])

    def context(self, entry: Entry, count: int) -> list[tuple[str, str]]:
        """Return up to `count` sentence pairs before an entry.

        Raises:
            UserError: there is no such document, or the sentence is another one there.
        """
        source, target = self.languages
        path = self.find(entry.document_id)
        if self._read[0] != path:  # entries of one document follow each other
            self._read = (path, read_pairs(path.with_name(f"{path.name.removesuffix(target)}{source}"), path))
        pairs, index = self._read[1], entry.segment_id - 1
        if index >= len(pairs) or not is_same_text(pairs[index][0], entry.src_segment):
            raise UserError(
                f"{path}: sentence {entry.segment_id} is not that of the test set; get the release of OpenSubtitles "
                "that setup_opensubs.sh names"
            )
        return pairs[max(0, index - count) : index]

    def find(self, document_id: str) -> Path:
        """Return the target side of a document whose id ends in YEAR/NAME, or in a NAME that only one year has.

        Raises:
            UserError: there is no such document, or there are several.
        """
        named, target = Path(document_id), self.languages[1]
        found = self.paths.get(f"{named.name.removesuffix(f'.{target}')}.{target}", [])
        if len(found) > 1:
            found = [path for path in found if path.parent.name == named.parent.name]
            if not found:
                raise UserError(f"{self.folder}: {document_id!r} is the name of several documents; give YEAR/NAME")
        if not found:
            raise UserError(f"{self.folder}: has no document {document_id!r}; run setup_opensubs.sh again")
        return found[0]


def contexts_of_documents(
    entries: Sequence[Entry], documents: Documents, count: int
) -> Iterator[list[tuple[str, str]]]:
    """Yield up to `count` sentence pairs before each entry; raises UserError as `Documents.context` does."""
    for entry in entries:
        yield documents.context(entry, count)


def text_paths(prefix: str, languages: tuple[str, str]) -> list[tuple[Path, Path]]:
    """Return the source and target files of the variants, and those of their contexts."""
    source, target = languages
    return [(Path(f"{prefix}.{name}.{source}"), Path(f"{prefix}.{name}.{target}")) for name in ("text", "context")]


def contexts_of_text(
    entries: Sequence[Entry], prefix: str, languages: tuple[str, str], count: int
) -> Iterator[list[tuple[str, str]]]:
    """Yield up to `count` sentence pairs before each entry, from PREFIX.text.LANGUAGE and PREFIX.context.LANGUAGE.

    Raises:
        UserError: a file is missing, or is not of these entries.
    """
    text, context = (read_pairs(*paths) for paths in text_paths(prefix, languages))
    expected = sum(1 + len(entry.errors) for entry in entries)
    per_line, rest = divmod(len(context), max(1, len(text)))
    if len(text) != expected or rest:
        raise UserError(
            f"{prefix}.text and {prefix}.context have {len(text)} and {len(context)} lines, expected {expected} and a "
            "multiple of it; write them again with json2text_and_context.pl"
        )
    line = 0
    for entry in entries:
        if not is_same_text(text[line][0], entry.src_segment):
            raise UserError(
                f"{prefix}.text.{languages[0]}:{line + 1}: expected {quote(entry.src_segment)}, found "
                f"{quote(text[line][0])}; give the files as json2text_and_context.pl wrote them"
            )
        yield existing_sentences(context[line * per_line : (line + 1) * per_line])[-count:] if count else []
        line += 1 + len(entry.errors)


def existing_sentences(context: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs after the last one that stands for the start of the document."""
    starts = [index for index, pair in enumerate(context) if pair in NO_CONTEXT]
    return list(context[starts[-1] + 1 if starts else 0 :])


def is_same_text(first: str, second: str) -> bool:
    """Return whether two sentences differ in white space at most."""
    return "".join(first.split()) == "".join(second.split())


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """Return the lines of two aligned texts; raises UserError if their numbers of lines differ."""
    sides = [[line.strip() for line in read_lines(path)] for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{source} has {len(sides[0])} lines, {target} has {len(sides[1])}; write them again")
    return list(zip(*sides, strict=True))
