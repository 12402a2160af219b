"""A contrastive example with its own context, and the file that holds one per line."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from relumt.atomic_output import atomic_file
from relumt.errors import UserError
from relumt.json_files import decode_json
from relumt.text_files import normalize_line, read_lines

ADVICE = "give a file that relumt import-contrast wrote"


class ExampleInContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence with its reference translation, wrong variants of it, and the sentences before it, as plain text.

    Attributes:
        source, target: the sentence and its reference.
        wrong: variants of `target`.
        source_context, target_context: the sentences before it, the last one directly before.
        distance: how many sentences back the antecedent is, 0 for the sentence itself; None if unknown.
        categories: groups of examples whose accuracy is reported, for example {"pronouns": "it:er"}.
        block: examples with the same block belong together; "" for none.

    Raises:
        ValueError: the variants or the contexts are not valid.
    """

    source: str
    target: str
    wrong: list[str]
    source_context: list[str] = []
    target_context: list[str] = []
    distance: Annotated[int, msgspec.Meta(ge=0)] | None = None
    categories: dict[str, str] = {}
    block: str = ""

    def __post_init__(self) -> None:
        if not self.wrong:
            raise ValueError("there is no wrong variant")
        if not normalize_line(self.source) or "" in self.variants:
            raise ValueError("the source or a variant is empty")
        if len(set(self.variants)) < len(self.variants):
            raise ValueError("two variants are the same")
        if len(self.source_context) != len(self.target_context):
            raise ValueError("the contexts of source and target differ in their number of sentences")

    @property
    def variants(self) -> tuple[str, ...]:
        """All translations with normalized white space, the reference first."""
        return tuple(map(normalize_line, (self.target, *self.wrong)))


def write_examples(path: Path, examples: Iterable[ExampleInContext]) -> None:
    """Write one example per line."""
    with atomic_file(path) as unfinished, unfinished.open("wb") as file:
        file.writelines(msgspec.json.encode(example) + b"\n" for example in examples)


def has_contexts(path: Path) -> bool:
    """Return whether the first example of a file has its own context; otherwise it names a sentence of a document.

    Raises:
        UserError: the file is missing or empty, or its first line is empty.
    """
    line = next(iter(read_lines(path)), None)
    if not (line and line.strip()):
        found = "an empty file" if line is None else "an empty first line"
        raise UserError(f"{path}: expected contrastive examples, found {found}; {ADVICE}")
    with suppress(msgspec.DecodeError, ValueError, RecursionError):  # what reads the examples reports it
        content = msgspec.json.decode(line)
        return isinstance(content, dict) and "document" not in content
    return False


def read_examples_in_context(path: Path) -> list[ExampleInContext]:
    """Read a file of examples; raises UserError if it is missing or empty, or a line is no example."""
    examples = [
        decode_json(line, ExampleInContext, f"{path}:{number}", ADVICE)
        for number, line in enumerate(read_lines(path), start=1)
    ]
    if not examples:
        raise UserError(f"{path}: expected contrastive examples, found an empty file; {ADVICE}")
    return examples
