"""Turn a public contrastive test set into examples for `relumt contrast`.

SET is contrapro.json (or its entries, one per line, as .jsonl), or anaphora.json or lexical-choice.json of Bawden et
al. 2018, which contain their contexts. The contexts of ContraPro come from documents or from its text files.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.arguments import whole_number
from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import require_inputs_kept

if TYPE_CHECKING:
    from relumt.corpora.contrastive import FindContexts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the set, where its contexts are, and where to write."""
    parser.add_argument("set", type=Path, metavar="SET", help="file of the test set")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file of examples to write")
    contexts = parser.add_mutually_exclusive_group()
    contexts.add_argument(
        "--documents", type=Path, metavar="DIR", help="documents that setup_opensubs.sh of ContraPro made"
    )
    contexts.add_argument(
        "--text", metavar="P", help="P.text.LANGUAGE and P.context.LANGUAGE, as json2text_and_context.pl writes them"
    )
    parser.add_argument(
        "--context", type=whole_number, default=5, metavar="N", help="sentences before each at most (default: 5)"
    )
    parser.add_argument(
        "--language-pair", default="en-de", metavar="SRC-TGT", help="names of ContraPro's files (default: en-de)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the examples."""
    from relumt.corpora.contrastive import import_examples, write_examples

    if arguments.out.suffix == ".gz":
        raise UserError(f"--out {arguments.out}: examples are not compressed; choose a name without .gz")
    languages = split_language_pair(arguments.language_pair)
    find_contexts = context_finder(arguments, languages)
    require_inputs_kept(input_paths(arguments, languages), [arguments.out])
    examples = import_examples(arguments.set, find_contexts)
    write_examples(arguments.out, examples)
    mean = sum(len(example.source_context) for example in examples) / len(examples)
    print_status(f"wrote {len(examples)} examples with {mean:.2f} sentences of context on average to {arguments.out}")


def split_language_pair(pair: str) -> tuple[str, str]:
    """Return the language codes of a pair such as "en-de", source first; raises UserError for an invalid one."""
    source, _, target = pair.partition("-")
    if not source or not target or "/" in pair:
        raise UserError(f"--language-pair {pair!r}: expected two languages, for example en-de")
    return source, target


def input_paths(arguments: argparse.Namespace, languages: tuple[str, str]) -> Iterator[Path]:
    """Yield everything that the arguments name to read."""
    from relumt.corpora.contrastive import text_paths

    yield arguments.set
    if arguments.text:
        yield from chain(*text_paths(arguments.text, languages))
    if arguments.documents:
        yield from arguments.documents.rglob("*")


def context_finder(arguments: argparse.Namespace, languages: tuple[str, str]) -> "FindContexts | None":
    """Return what finds the contexts that the arguments ask for."""
    from relumt.corpora.contrastive import contexts_of_documents, contexts_of_text

    if arguments.documents:
        folder = arguments.documents
        return partial(contexts_of_documents, folder=folder, languages=languages, count=arguments.context)
    if arguments.text:
        return partial(contexts_of_text, prefix=arguments.text, languages=languages, count=arguments.context)
    return None
