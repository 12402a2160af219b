"""Contrastive examples with contexts of their own, and public test sets that become such examples.

ContraPro (Müller et al. 2018, github.com/ZurichNLP/ContraPro), English-German pronouns: contrapro.json has the
sentences. Their contexts are in the documents of OpenSubtitles, which setup_opensubs.sh downloads, or in the files that
json2text_and_context.pl writes from them: contrapro.text.LANGUAGE with a line per variant, and
contrapro.context.LANGUAGE with the same number of lines before each.

Bawden et al. 2018 (github.com/rbawden/discourse-mt-test-sets), English-French: a file maps numbers to blocks. In
anaphora.json, a block has a source (two sentences: context and current) and several translations of both with a right
and a wrong second sentence. In lexical-choice.json, it has several sources with one such translation each. The right
and the wrong translation share the context.

CTXPro (Wicks and Post 2023, github.com/rewicks/ctxpro): release/evalsets/*.json has sentences, and a form each that a
translation in context contains. release/inputs/* has a line per sentence, with the sentences before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from relumt.corpora.bitext import check_line_counts
from relumt.errors import UserError, describe_error
from relumt.files import atomic_file, decode_json, load_text, normalize_line, read_lines

ADVICE = "give a file that relumt import-contrast or relumt synth wrote"

Example = TypeVar("Example")
SET_ADVICE = "give contrapro.json, a file of CTXPro, or anaphora.json or lexical-choice.json of Bawden et al. 2018"

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


class FormExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence whose translation needs the context, and a form that it then contains, as plain text.

    Attributes:
        source: the sentence.
        expected: words that its translation contains.
        source_context, distance, categories: as in `ExampleInContext`.
    """

    block: ClassVar[str] = ""
    source: str
    expected: str
    source_context: list[str] = []
    distance: Annotated[int, msgspec.Meta(ge=0)] | None = None
    categories: dict[str, str] = {}


def make_example(**fields: object) -> ExampleInContext:
    """Return an example; raises `msgspec.ValidationError` if a field is missing or not valid."""
    return msgspec.convert(fields, ExampleInContext)


def write_examples(path: Path, examples: Iterable[ExampleInContext | FormExample]) -> None:
    """Write one example per line."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(msgspec.json.Encoder().encode_lines(examples))


def find_keys(path: Path) -> list[str]:
    """Return the keys of the first example of a file, which tell its kind; none if it is no example."""
    with suppress(msgspec.DecodeError, ValueError, RecursionError):  # what reads the examples reports it
        content = msgspec.json.decode(next(iter(read_lines(path)), ""))
        return list(content) if isinstance(content, dict) else []
    return []


def read_examples(path: Path, kind: type[Example]) -> list[Example]:
    """Read a file of examples of a kind; raises UserError if it is missing or empty, or a line is no example."""
    lines = enumerate(read_lines(path), start=1)
    examples = [decode_json(line, kind, f"{path}:{number}", ADVICE) for number, line in lines]
    if not examples:
        raise UserError(f"{path}: expected contrastive examples, found an empty file; {ADVICE}")
    return examples


Entry = dict[str, Any]
"""A sentence of contrapro.json, or of a file of CTXPro."""

FindContexts = Callable[[list[Entry]], Iterable[Context]]


def contrapro_example(entry: Entry, context: Context) -> ExampleInContext:
    """Return the example of a sentence after a context; raises as `msgspec.convert` does, or KeyError."""
    distance = entry.get("ante distance")
    return make_example(
        source=entry["src segment"],
        target=entry["ref segment"],
        wrong=[error["contrastive"] for error in entry["errors"]],
        source_context=[source for source, _ in context],
        target_context=[target for _, target in context],
        distance=None if distance is None or distance < 0 else distance,
        categories={
            "pronouns": f"{entry['src pronoun']}:{entry['ref pronoun']}".lower(),
            "antecedent": ANTECEDENT[entry.get("intrasegmental")],
        },
    )


def entry_example(entry: Entry, context: Context) -> ExampleInContext | FormExample:
    """Return the example of a sentence of ContraPro or CTXPro after a context; raises as `contrapro_example` does."""
    if "expected" not in entry:
        return contrapro_example(entry, context)
    fields = {"source": entry["src segment"], "expected": entry["expected"], "distance": entry.get("ante distance")}
    categories = {"rule": entry["rule"]}
    contexts = {"source_context": [source for source, _ in context], "categories": categories}
    return msgspec.convert(fields | contexts, FormExample)


def contexts_of_inputs(entries: Sequence[Entry], path: Path, count: int) -> Iterator[Context]:
    """Yield up to `count` sentences before each entry of CTXPro, with "" as their translations, from a file of inputs.

    Raises:
        UserError: the file is not the one of these entries.
    """
    inputs = load_text(path)
    if len(inputs) != len(entries):
        raise UserError(
            f"{path}: has {len(inputs)} lines, but the test set {len(entries)}; give the file of the same name"
        )
    for number, (line, entry) in enumerate(zip(inputs, entries, strict=True), start=1):
        *context, sentence = line.split("<eos> ")
        if sentence.strip() != entry["src segment"].strip():
            raise UserError(f"{path}:{number}: is not the sentence of the test set; give the file of the same name")
        yield [(text, "") for text in context if normalize_line(text)][-count:] if count else []


def contexts_of_documents(
    entries: Sequence[Entry], folder: Path, languages: tuple[str, str], count: int
) -> Iterator[Context]:
    """Yield up to `count` sentence pairs before each entry, from FOLDER/YEAR/NAME.LANGUAGE, a sentence per line.

    Raises:
        UserError: there is no such document, or the sentence is another one there.
    """
    source, target = languages
    for document, own in groupby(entries, lambda entry: entry["document id"]):
        named = Path(document.removesuffix(f".{target}"))
        found = list(folder.glob(f"*/{named.name}.{target}"))
        found = [path for path in found if path.parent.name == named.parent.name] or found
        if not found:
            raise UserError(f"{folder}: has no document YEAR/NAME for {document!r}; run setup_opensubs.sh")
        pairs = read_pairs(found[0].with_suffix(f".{source}"), found[0])
        for entry in own:
            index = entry["segment id"] - 1
            # They may differ in white space.
            if index >= len(pairs) or "".join(pairs[index][0].split()) != "".join(entry["src segment"].split()):
                raise UserError(f"{found[0]}: sentence {index + 1} is not that of the test set; run setup_opensubs.sh")
            yield pairs[max(0, index - count) : index]


def contexts_of_text(
    entries: Sequence[Entry], prefix: str, languages: tuple[str, str], count: int
) -> Iterator[Context]:
    """Yield up to `count` sentence pairs before each entry, from PREFIX.text.LANGUAGE and PREFIX.context.LANGUAGE.

    Raises:
        UserError: a file is missing, or is not of these entries.
    """
    text, context = (
        read_pairs(*(Path(f"{prefix}.{name}.{language}") for language in languages)) for name in ("text", "context")
    )
    expected = sum(1 + len(entry["errors"]) for entry in entries)
    per_line, rest = divmod(len(context), expected or 1)
    if len(text) != expected or rest:
        found = f"{len(text)} and {len(context)} lines"
        raise UserError(f"{prefix}.text and .context have {found}, expected {expected} and a multiple of it")
    start = 0
    for entry in entries:
        before = context[start : start + per_line]
        starts = [index for index, pair in enumerate(before, start=1) if pair in NO_CONTEXT]
        yield before[max([0, *starts]) :][-count:] if count else []
        start += per_line * (1 + len(entry["errors"]))


def read_pairs(source: Path, target: Path) -> Context:
    """Return the lines of two aligned texts; raises UserError if their numbers of lines differ."""
    sides = [[line.strip() for line in read_lines(path)] for path in (source, target)]
    check_line_counts((source, target), list(map(len, sides)))
    return list(zip(*sides, strict=True))


def bawden_examples(blocks: dict[str, Any]) -> Iterator[ExampleInContext]:
    """Yield the examples in the order of the authors' scripts, by the number of the block.

    A translation is semi-correct if it has an unusual word for the antecedent. Raises as `contrapro_example` does.
    """
    for name, block in sorted(blocks.items(), key=lambda item: (item[0].zfill(20), item[0])):
        anaphora = [(block["src"], translation, 1) for translation in block.get("trg", ())]
        lexical = [(example["src"], example["trg"], None) for example in block.get("examples", ())]
        for source, translation, distance in anaphora + lexical:
            kind = "correct" if "correct" in translation else "semi-correct"
            before, right = translation[kind]
            if distance:
                categories = {"translation": kind, "pronoun": translation.get("type")}
            else:
                categories = {"type": block.get("type")}
            yield make_example(
                source=source[1],
                target=right,
                wrong=[translation["incorrect"][1]],
                source_context=[source[0]],
                target_context=[before],
                distance=distance,
                categories={key: value for key, value in categories.items() if value},
                block=name,
            )


def import_examples(path: Path, find_contexts: FindContexts | None) -> list[ExampleInContext | FormExample]:
    """Return the examples of a test set.

    Args:
        path: contrapro.json or a file of CTXPro, their entries one per line (.jsonl), or a file of Bawden et al.
        find_contexts: returns the contexts of the entries; None to leave them without.

    Raises:
        UserError: the file is missing, of another format or empty, or contexts are asked for that it has itself.
    """
    lines = list(read_lines(path))
    has_json_lines = path.name.removesuffix(".gz").endswith(".jsonl")
    text = f"[{','.join(lines)}]" if has_json_lines else "".join(lines)
    content: Any = decode_json(text, object, str(path), SET_ADVICE)
    imported: list[ExampleInContext | FormExample] = []
    try:
        if isinstance(content, dict):
            if find_contexts:
                raise UserError(f"{path}: has its own contexts; drop --documents, --text and --inputs")
            imported.extend(bawden_examples(content))
        else:
            contexts = find_contexts(content) if find_contexts else repeat([], len(content))
            imported.extend(map(entry_example, content, contexts))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: example {len(imported) + 1}: {describe_error(error)}; {SET_ADVICE}") from None
    if not imported:
        raise UserError(f"{path}: has no examples; {SET_ADVICE}")
    return imported
