"""Turn a corpus of the papers into a data-bin, as they prepared it. `data_prep/` has a script for each.

RAW holds the files that the corpus's makers publish, as archives or extracted; missing ones are downloaded. Tokenized
texts are kept in OUT.text, so that a change of BPE repeats neither download nor tokenization. --test takes a test set
from sacreBLEU's cache, or downloads it; without CORPUS, only the texts of that test set are written, to OUT.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from relumt.arguments import given_flags, positive_integer
from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.build import find_test_set, prepare_corpus, write_texts
from relumt.corpora.published_corpora import CORPORA, Iwslt14
from relumt.errors import UserError

CORPUS_OPTIONS = ("raw", "bpe", "vocab_size", "without_tedx", "without_misaligned")
"""Options that have no effect on a test set alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt corpus`."""
    parser.add_argument("corpus", metavar="CORPUS", nargs="?", help=", ".join(CORPORA))
    parser.add_argument("--test", metavar="NAME", help="test set with sacreBLEU's name, for example wmt14/full")
    parser.add_argument(
        "--language-pair",
        metavar="SRC-TGT",
        help="languages of the test set, for example en-de (default: those of the corpus)",
    )
    parser.add_argument("--raw", type=Path, default=Path("raw"), help="folder of the published files (default: raw)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="what to create (default: data-bin/CORPUS)")
    parser.add_argument("--bpe", default="subword-nmt", choices=list(BPE_METHODS), help="(default: subword-nmt)")
    parser.add_argument(
        "--vocab-size", type=positive_integer, metavar="N", help="joint BPE merges (default: the corpus's own)"
    )
    parser.add_argument("--without-tedx", action="store_true", help="IWSLT14: test on the 5,585 pairs that [RF] names")
    parser.add_argument("--without-misaligned", action="store_true", help="IWSLT14: test without 72 misaligned pairs")
    parser.add_argument("--overwrite", action="store_true", help="replace what this command created before")


def run(arguments: argparse.Namespace) -> None:
    """Create the texts OUT.text and from them the data-bin OUT, or only the texts of a test set."""
    if arguments.corpus is None:
        write_test_set(arguments)
        return
    if arguments.corpus not in CORPORA:
        raise UserError(f"unknown corpus '{arguments.corpus}'; choose one of {', '.join(CORPORA)}")
    corpus = CORPORA[arguments.corpus]
    if arguments.without_tedx or arguments.without_misaligned:
        if not isinstance(corpus, Iwslt14):
            raise UserError(f"--without-tedx and --without-misaligned are for IWSLT14, not for {arguments.corpus}")
        if arguments.test:
            raise UserError("--without-tedx and --without-misaligned are for IWSLT14's own test set; drop --test")
        corpus = replace(corpus, tedx=not arguments.without_tedx, misaligned=not arguments.without_misaligned)
    if arguments.language_pair:
        raise UserError(f"--language-pair is for a test set alone; {arguments.corpus} has its own languages")
    test_set = find_test_set(arguments.test, "-".join(corpus.languages)) if arguments.test else None
    out = arguments.out or Path("data-bin") / arguments.corpus
    prepare_corpus(corpus, arguments.raw, out, arguments.bpe, arguments.vocab_size, arguments.overwrite, test_set)


def write_test_set(arguments: argparse.Namespace) -> None:
    """Write the texts of a test set to the folder OUT, by default data-bin/NAME_SRC_TGT.text."""
    if arguments.test is None:
        raise UserError(f"expected a CORPUS ({', '.join(CORPORA)}) or --test with a name of sacreBLEU")
    if given := given_flags(arguments, CORPUS_OPTIONS, add_arguments):
        raise UserError(f"{given[0]} has no effect on a test set alone; drop it, or name a CORPUS")
    test_set = find_test_set(arguments.test, arguments.language_pair)
    name = "_".join([test_set.name.replace("/", "-"), *test_set.languages])
    out = arguments.out or Path("data-bin") / f"{name}.text"
    write_texts(test_set, test_set.cache, out, arguments.overwrite)
