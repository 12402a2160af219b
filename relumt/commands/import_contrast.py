"""Turn a public contrastive test set into examples for `relumt contrast`.

SET is contrapro.json (or its entries, one per line, as .jsonl), or anaphora.json or lexical-choice.json of Bawden et
al. 2018, which contain their contexts. The contexts of ContraPro come from documents or from its text files.
"""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from relumt.arguments import valid_path, whole_number
from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import require_inputs_kept

if TYPE_CHECKING:
    from relumt.prep.contrastive.importing import FindContexts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the set, where its contexts are, and where to write."""
    add = parser.add_argument
    add("set", type=valid_path, metavar="SET", help="file of the test set")
    add("--out", type=valid_path, required=True, metavar="FILE", help="file of examples to write")
    contexts = parser.add_mutually_exclusive_group()
    documents_help = "documents that setup_opensubs.sh of ContraPro made"
    text_help = "P.text.LANGUAGE and P.context.LANGUAGE, as json2text_and_context.pl writes them"
    contexts.add_argument("--documents", type=valid_path, metavar="DIR", help=documents_help)
    contexts.add_argument("--text", metavar="P", help=text_help)
    context_help = "sentences before each at most (default: 5)"
    add("--context", type=whole_number, default=5, metavar="N", help=context_help)
    pair_help = "names of ContraPro's files (default: en-de)"
    add("--language-pair", default="en-de", metavar="SRC-TGT", help=pair_help)


def run(arguments: argparse.Namespace) -> None:
    """Write the examples."""
    from relumt.prep.contrastive.example import write_examples
    from relumt.prep.contrastive.importing import import_examples

    languages = split_language_pair(arguments.language_pair)
    find_contexts = context_finder(arguments, languages)
    require_inputs_kept([arguments.set], [arguments.out])
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


def context_finder(arguments: argparse.Namespace, languages: tuple[str, str]) -> "FindContexts | None":
    """Return what finds the contexts that the arguments ask for."""
    from relumt.prep.contrastive.contrapro import Documents, contexts_of_documents, contexts_of_text

    if arguments.documents:
        documents = Documents(arguments.documents, languages)
        return partial(contexts_of_documents, documents=documents, count=arguments.context)
    if arguments.text:
        return partial(contexts_of_text, prefix=arguments.text, languages=languages, count=arguments.context)
    return None
