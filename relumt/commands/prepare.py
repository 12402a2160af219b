"""Turn a bitext into a fairseq data-bin: read, check, tokenize, clean, segment with joint BPE, and binarize.

P is a prefix: the texts are P.SRC and P.TGT, or P.SRC.gz and P.TGT.gz, in UTF-8, one sentence per line. Optional files:
P.docs has the number of sentences of each document, one per line. P.align has gold word alignments of valid or test,
0-0 1-2, source word first; P.de-en.align fits either translation direction. Repeating a finished command does nothing.
"""

import argparse
from pathlib import Path

from relumt.arguments import finite_number, positive_integer
from relumt.corpora.bitext import SPLITS
from relumt.corpora.options import BPE_CHOICES, Options
from relumt.corpora.prepare import prepare

DEFAULT_VOCAB_SIZE = 8000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt prepare`."""
    parser.add_argument("--src", required=True, metavar="LANG", help="source language, for example de")
    parser.add_argument("--tgt", required=True, metavar="LANG", help="target language")
    for split in SPLITS:
        parser.add_argument(f"--{split}", required=True, metavar="P", help=f"prefix of the {split} texts")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="data-bin to create")
    parser.add_argument(
        "--bpe", default="subword-nmt", metavar="METHOD", help=f"{', '.join(BPE_CHOICES)} (default: %(default)s)"
    )
    parser.add_argument(
        "--vocab-size",
        type=positive_integer,
        metavar="N",
        help=f"number of merges (subword-nmt) or pieces (sentencepiece) (default: {DEFAULT_VOCAB_SIZE})",
    )
    parser.add_argument("--tokenize", action="store_true", help="split words as Moses does (sacremoses)")
    parser.add_argument("--tokenized-input", action="store_true", help="the texts are Moses-tokenized already")
    parser.add_argument(
        "--lowercase",
        action="store_true",
        help="lowercase all texts; also give it if they are lowercase already, so that scores ignore case",
    )
    parser.add_argument(
        "--max-length",
        type=positive_integer,
        default=250,
        metavar="N",
        help="drop training pairs with more words on a side (default: %(default)s)",
    )
    parser.add_argument(
        "--max-ratio",
        type=finite_number,
        default=9.0,
        metavar="R",
        help="drop training pairs with one side more than R times as long as the other, in words "
        "(default: %(default)s); give a large one for a language written without spaces",
    )
    parser.add_argument(
        "--documents",
        metavar="KIND",
        help="the texts contain document markup: d (a line <d> before each document) or europarl (as released)",
    )
    parser.add_argument(
        "--document-separator",
        metavar="WORD",
        help="add a word to the dictionaries, for use between the sentences of a document, for example <sep>",
    )
    parser.add_argument("--separate-dictionaries", action="store_true", help="one dictionary per language")
    parser.add_argument("--overwrite", action="store_true", help="replace a data-bin that this command created")


def run(arguments: argparse.Namespace) -> None:
    """Prepare the bitext that the command line describes."""
    vocab_size = arguments.vocab_size
    if vocab_size is None and arguments.bpe != "none":
        vocab_size = DEFAULT_VOCAB_SIZE
    options = Options(
        source=arguments.src,
        target=arguments.tgt,
        bpe=arguments.bpe,
        vocab_size=vocab_size,
        tokenize=arguments.tokenize,
        tokenized_input=arguments.tokenized_input,
        lowercase=arguments.lowercase,
        max_length=arguments.max_length,
        max_ratio=arguments.max_ratio,
        separate_dictionaries=arguments.separate_dictionaries,
        documents=arguments.documents,
        separator=arguments.document_separator,
    )
    prefixes = {split: getattr(arguments, split) for split in SPLITS}
    prepare(prefixes, arguments.out, options, arguments.overwrite)
