"""Read a public contrastive test set in its own format."""

from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path

from relumt.errors import UserError
from relumt.json_files import decode_json
from relumt.prep.contrastive.bawden import BawdenFile, bawden_examples
from relumt.prep.contrastive.contrapro import Entry
from relumt.prep.contrastive.example import ExampleInContext
from relumt.text_files import read_lines

ADVICE = "give contrapro.json, or anaphora.json or lexical-choice.json of Bawden et al. 2018"

Context = list[tuple[str, str]]
"""The source and target sentences before a sentence."""

FindContexts = Callable[[list[Entry]], Iterable[Context]]


def import_examples(path: Path, find_contexts: FindContexts | None) -> list[ExampleInContext]:
    """Return the examples of a test set.

    Args:
        path: contrapro.json, its entries one per line (.jsonl), or a file of Bawden et al.
        find_contexts: returns the contexts of ContraPro's entries; None to leave them without.

    Raises:
        UserError: the file is missing, of another format or empty, or contexts are asked for that it has itself.
    """
    has_json_lines = path.name.removesuffix(".gz").endswith(".jsonl")
    lines = list(read_lines(path))
    text = "".join(lines)
    examples: Iterable[ExampleInContext]
    if not has_json_lines and text.lstrip().startswith("{"):
        if find_contexts:
            raise UserError(f"{path}: has its own contexts; drop --documents and --text")
        examples = bawden_examples(decode_json(text, BawdenFile, str(path), ADVICE))
    else:
        entries = [
            decode_json(line, Entry, f"{path}:{number}", ADVICE) for number, line in enumerate(lines, start=1)
        ] if has_json_lines else decode_json(text, list[Entry], str(path), ADVICE)  # fmt: skip
        contexts = find_contexts(entries) if find_contexts else repeat([], len(entries))
        examples = (entry.to_example(context) for entry, context in zip(entries, contexts, strict=True))
    imported: list[ExampleInContext] = []
    try:
        imported.extend(examples)
    except ValueError as error:
        raise UserError(f"{path}: example {len(imported) + 1}: {error}; {ADVICE}") from None
    if not imported:
        raise UserError(f"{path}: has no examples; {ADVICE}")
    return imported
