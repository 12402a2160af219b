"""Contrastive examples with contexts of their own, and public test sets that become such examples.

ContraPro (Müller et al. 2018, github.com/ZurichNLP/ContraPro), English-German pronouns: contrapro.json has the
sentences. Their contexts are in the documents of OpenSubtitles, which setup_opensubs.sh downloads, or in the files that
json2text_and_context.pl writes from them: contrapro.text.LANGUAGE with a line per variant, and
contrapro.context.LANGUAGE with the same number of lines before each.

Bawden et al. 2018 (github.com/rbawden/discourse-mt-test-sets), English-French: a file maps numbers to blocks. In
anaphora.json, a block has a source (two sentences: context and current) and several translations of both with a right
and a wrong second sentence. In lexical-choice.json, it has several sources with one such translation each. The right
and the wrong translation share the context.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Annotated

import msgspec

from relumt.errors import UserError, quote
from relumt.files import atomic_file, decode_json
from relumt.text_files import normalize_line, read_lines

ADVICE = "give a file that relumt import-contrast wrote"
SET_ADVICE = "give contrapro.json, or anaphora.json or lexical-choice.json of Bawden et al. 2018"

NO_CONTEXT = {("", ""), ("null", "null")}
"""Source and target line in place of a sentence before the first of a document, by version of ContraPro's script."""

ANTECEDENT = {True: "in the sentence", False: "before the sentence", None: "unknown"}

Context = list[tuple[str, str]]
"""The source and target sentences before a sentence."""


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
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(msgspec.json.Encoder().encode_lines(examples))


def has_contexts(path: Path) -> bool:
    """Return whether the first example of a file has its own context; otherwise it names a sentence of a document."""
    with suppress(msgspec.DecodeError, ValueError, RecursionError):  # what reads the examples reports it
        content = msgspec.json.decode(next(iter(read_lines(path)), ""))
        return isinstance(content, dict) and "document" not in content
    return False


def read_examples_in_context(path: Path) -> list[ExampleInContext]:
    """Read a file of examples; raises UserError if it is missing or empty, or a line is no example."""
    lines = enumerate(read_lines(path), start=1)
    examples = [decode_json(line, ExampleInContext, f"{path}:{number}", ADVICE) for number, line in lines]
    if not examples:
        raise UserError(f"{path}: expected contrastive examples, found an empty file; {ADVICE}")
    return examples


class Error(msgspec.Struct):
    """A wrong variant of a reference in contrapro.json."""

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

    def to_example(self, context: Context) -> ExampleInContext:
        """Return the example; raises ValueError if the variants are not valid."""
        pronouns = f"{self.src_pronoun}:{self.ref_pronoun}".lower()
        return ExampleInContext(
            source=self.src_segment,
            target=self.ref_segment,
            wrong=[error.contrastive for error in self.errors],
            source_context=[source for source, _ in context],
            target_context=[target for _, target in context],
            distance=None if self.ante_distance is None or self.ante_distance < 0 else self.ante_distance,
            categories={"pronouns": pronouns, "antecedent": ANTECEDENT[self.intrasegmental]},
        )


FindContexts = Callable[[list[Entry]], Iterable[Context]]


def contexts_of_documents(
    entries: Sequence[Entry], folder: Path, languages: tuple[str, str], count: int
) -> Iterator[Context]:
    """Yield up to `count` sentence pairs before each entry, from FOLDER/YEAR/NAME.LANGUAGE, a sentence per line.

    Raises:
        UserError: there is no such document, or there are several, or the sentence is another one there.
    """
    source, target = languages
    document, pairs = "", []
    for entry in entries:
        if entry.document_id != document:  # entries of one document follow each other
            document = entry.document_id
            named = Path(document.removesuffix(f".{target}"))
            found = list(folder.glob(f"*/{named.name}.{target}"))
            found = [path for path in found if path.parent.name == named.parent.name] if len(found) > 1 else found
            if not found:
                raise UserError(f"{folder}: has no single document YEAR/NAME for {document!r}; run setup_opensubs.sh")
            pairs = read_pairs(found[0].with_suffix(f".{source}"), found[0])
        index = entry.segment_id - 1
        if index >= len(pairs) or not is_same_text(pairs[index][0], entry.src_segment):
            raise UserError(f"{found[0]}: sentence {index + 1} is not that of the test set; run setup_opensubs.sh")
        yield pairs[max(0, index - count) : index]


def text_paths(prefix: str, languages: tuple[str, str]) -> list[tuple[Path, Path]]:
    """Return the source and target files of the variants, and those of their contexts."""
    source, target = languages
    return [(Path(f"{prefix}.{name}.{source}"), Path(f"{prefix}.{name}.{target}")) for name in ("text", "context")]


def contexts_of_text(
    entries: Sequence[Entry], prefix: str, languages: tuple[str, str], count: int
) -> Iterator[Context]:
    """Yield up to `count` sentence pairs before each entry, from PREFIX.text.LANGUAGE and PREFIX.context.LANGUAGE.

    Raises:
        UserError: a file is missing, or is not of these entries.
    """
    text, context = (read_pairs(*paths) for paths in text_paths(prefix, languages))
    expected = sum(1 + len(entry.errors) for entry in entries)
    per_line, rest = divmod(len(context), max(1, len(text)))
    if len(text) != expected or rest:
        found = f"{len(text)} and {len(context)} lines"
        raise UserError(f"{prefix}.text and .context have {found}, expected {expected} and a multiple of it")
    line = 0
    for entry in entries:
        if not is_same_text(text[line][0], entry.src_segment):
            raise UserError(f"{prefix}.text, line {line + 1}: expected {quote(entry.src_segment)}; write it again")
        before = context[line * per_line : (line + 1) * per_line]
        starts = [index for index, pair in enumerate(before, start=1) if pair in NO_CONTEXT]
        yield before[max([0, *starts]) :][-count:] if count else []
        line += 1 + len(entry.errors)


def is_same_text(first: str, second: str) -> bool:
    """Return whether two sentences differ in white space at most."""
    return "".join(first.split()) == "".join(second.split())


def read_pairs(source: Path, target: Path) -> Context:
    """Return the lines of two aligned texts; raises UserError if their numbers of lines differ."""
    sides = [[line.strip() for line in read_lines(path)] for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{source} has {len(sides[0])} lines, {target} has {len(sides[1])}; write them again")
    return list(zip(*sides, strict=True))


Pair = tuple[str, str]
"""The sentence before, and the current one."""


class Translation(msgspec.Struct):
    """A right and a wrong translation of Bawden et al.; semi-correct is one with an unusual word for the antecedent."""

    incorrect: Pair
    correct: Pair | None = None
    semi_correct: Pair | None = msgspec.field(default=None, name="semi-correct")
    type: str = ""

    def to_example(self, block: str, source: Pair, distance: int | None, *categories: Pair) -> ExampleInContext:
        """Return the example; raises ValueError if the translations are not valid."""
        right = self.correct or self.semi_correct
        if right is None or (self.correct and self.semi_correct):
            raise ValueError("expected either 'correct' or 'semi-correct'")
        known = {key: value for key, value in categories if value}
        wrong, before = [self.incorrect[1]], ([source[0]], [right[0]])
        return ExampleInContext(source[1], right[1], wrong, *before, distance, known, block)


class LexicalExample(msgspec.Struct):
    """A source with its translations."""

    src: Pair
    trg: Translation


class Block(msgspec.Struct):
    """A block of either file: `src` and `trg`, or `examples`."""

    src: Pair = ("", "")
    trg: list[Translation] = []
    type: str = ""
    examples: list[LexicalExample] = []


def bawden_examples(blocks: dict[str, Block]) -> Iterator[ExampleInContext]:
    """Yield the examples in the order of the authors' scripts, by the number of the block.

    Raises:
        ValueError: the translations of an example are not valid.
    """
    for name, block in sorted(blocks.items(), key=lambda item: (item[0].zfill(20), item[0])):
        if not block.trg and not block.examples:
            raise ValueError("expected either 'src' and 'trg' or 'examples'")
        for translation in block.trg:
            kind = "correct" if translation.correct else "semi-correct"
            yield translation.to_example(name, block.src, 1, ("translation", kind), ("pronoun", translation.type))
        for lexical in block.examples:
            yield lexical.trg.to_example(name, lexical.src, None, ("type", block.type))


def import_examples(path: Path, find_contexts: FindContexts | None) -> list[ExampleInContext]:
    """Return the examples of a test set.

    Args:
        path: contrapro.json, its entries one per line (.jsonl), or a file of Bawden et al.
        find_contexts: returns the contexts of ContraPro's entries; None to leave them without.

    Raises:
        UserError: the file is missing, of another format or empty, or contexts are asked for that it has itself.
    """
    examples: Iterable[ExampleInContext]
    lines = list(read_lines(path))
    has_json_lines = path.name.removesuffix(".gz").endswith(".jsonl")
    text = f"[{','.join(lines)}]" if has_json_lines else "".join(lines)
    if text.lstrip().startswith("{"):
        if find_contexts:
            raise UserError(f"{path}: has its own contexts; drop --documents and --text")
        examples = bawden_examples(decode_json(text, dict[str, Block], str(path), SET_ADVICE))
    else:
        entries = decode_json(text, list[Entry], str(path), SET_ADVICE)
        contexts = find_contexts(entries) if find_contexts else repeat([], len(entries))
        examples = (entry.to_example(context) for entry, context in zip(entries, contexts, strict=True))
    imported: list[ExampleInContext] = []
    try:
        imported.extend(examples)
    except ValueError as error:
        raise UserError(f"{path}: example {len(imported) + 1}: {error}; {SET_ADVICE}") from None
    if not imported:
        raise UserError(f"{path}: has no examples; {SET_ADVICE}")
    return imported
