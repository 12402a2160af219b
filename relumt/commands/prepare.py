"""Turn a bitext into a fairseq data-bin: read, check, tokenise, clean, segment by a joint BPE and binarise.

P is a prefix: the texts are P.SRC and P.TGT, or P.SRC.gz and P.TGT.gz, UTF-8, one sentence a line; P.docs, if it
is there, gives the sentences of each document, P.align the word alignments of valid or test (0-0 1-2, the source's word
first; P.de-en.align of either direction). Repeating a finished command does nothing.
"""

import argparse
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.options import BPE_KINDS, SPLITS, Options
from relumt.prep.pipeline import prepare
from relumt.prep.progress import Steps

DEFAULT_VOCAB_SIZE = 8000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt prepare`."""
    parser.add_argument("--src", required=True, metavar="LANG", help="source language, de for example")
    parser.add_argument("--tgt", required=True, metavar="LANG", help="target language")
    for split in SPLITS:
        parser.add_argument(f"--{split}", required=True, metavar="P", help=f"prefix of the {split} texts")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the data-bin to make")
    parser.add_argument(
        "--bpe", default="subword-nmt", metavar="KIND", help=f"{', '.join(BPE_KINDS)} (default: %(default)s)"
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help=f"subword-nmt: number of merges; sentencepiece: number of pieces (default: {DEFAULT_VOCAB_SIZE})",
    )
    parser.add_argument("--tokenize", action="store_true", help="split words as Moses does (sacremoses)")
    parser.add_argument("--tokenized-input", action="store_true", help="the texts are Moses-tokenised already")
    parser.add_argument(
        "--lowercase",
        action="store_true",
        help="lower-case all texts; give it too where they are in lower case already, for the record",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=250,
        metavar="N",
        help="drop pairs of train with more words on a side (default: %(default)s)",
    )
    parser.add_argument(
        "--max-ratio",
        type=float,
        default=9.0,
        metavar="R",
        help="drop pairs of train with a side R times longer, in words, than the other (default: %(default)s); "
        "for a script without spaces give a large one",
    )
    parser.add_argument(
        "--documents",
        metavar="KIND",
        help="the texts tell documents apart by markup: d (a line <d> before each) or europarl (the release's own)",
    )
    parser.add_argument(
        "--document-separator",
        metavar="WORD",
        help="a word for the dictionaries that can stand between the sentences of a document, <sep> for example",
    )
    parser.add_argument("--separate-dictionaries", action="store_true", help="one dictionary a language")
    parser.add_argument("--overwrite", action="store_true", help="replace a data-bin made by this command")


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
    try:
        prepare(prefixes, arguments.out, options, arguments.overwrite, Steps())
    except OSError as error:
        raise UserError(f"{error}; check the path and the space on the disk") from error
