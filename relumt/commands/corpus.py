"""Turn a corpus of the papers into a data-bin, as they prepared it. `data_prep/` has a script for each.

RAW holds the files that the corpus's makers publish, as archives or extracted; missing ones are downloaded. Tokenized
texts are kept in OUT.text, so that a change of BPE repeats neither download nor tokenization.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from relumt.arguments import positive_integer, valid_path
from relumt.errors import UserError
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.corpora.build import prepare_corpus
from relumt.prep.corpora.iwslt14 import Iwslt14
from relumt.prep.corpora.registry import CORPORA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt corpus`."""
    parser.add_argument("corpus", metavar="CORPUS", help=", ".join(CORPORA))
    parser.add_argument(
        "--raw", type=valid_path, default=Path("raw"), help="folder of the published files (default: raw)"
    )
    parser.add_argument("--out", type=valid_path, metavar="DIR", help="data-bin to create (default: data-bin/CORPUS)")
    parser.add_argument("--bpe", default="subword-nmt", choices=list(BPE_METHODS), help="(default: subword-nmt)")
    parser.add_argument(
        "--vocab-size", type=positive_integer, metavar="N", help="joint BPE merges (default: the corpus's own)"
    )
    parser.add_argument("--without-tedx", action="store_true", help="IWSLT14: test on the 5,585 pairs that [RF] names")
    parser.add_argument("--without-misaligned", action="store_true", help="IWSLT14: test without 72 misaligned pairs")
    parser.add_argument("--overwrite", action="store_true", help="replace what this command created before")


def run(arguments: argparse.Namespace) -> None:
    """Create the texts OUT.text and from them the data-bin OUT."""
    if arguments.corpus not in CORPORA:
        raise UserError(f"unknown corpus '{arguments.corpus}'; choose one of {', '.join(CORPORA)}")
    corpus = CORPORA[arguments.corpus]
    if arguments.without_tedx or arguments.without_misaligned:
        if not isinstance(corpus, Iwslt14):
            raise UserError(f"--without-tedx and --without-misaligned are for IWSLT14, not for {arguments.corpus}")
        corpus = replace(corpus, tedx=not arguments.without_tedx, misaligned=not arguments.without_misaligned)
    out = arguments.out or Path("data-bin") / arguments.corpus
    prepare_corpus(corpus, arguments.raw, out, arguments.bpe, arguments.vocab_size, arguments.overwrite)
