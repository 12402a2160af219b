"""Turn a corpus of the papers into a data-bin, as they prepared it; `data_prep/` has a script for each.

RAW holds the files that the corpus's makers publish, packed as they are or unpacked; what is missing is downloaded
into it. Tokenised texts are kept in OUT.text, so that another BPE repeats neither download nor tokenisation.
"""

import argparse
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from relumt.atomic_output import atomic_folder
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.iwslt14 import Iwslt14, TestSet
from relumt.prep.corpora.registry import CORPORA
from relumt.prep.options import SPLITS, Options
from relumt.prep.pipeline import prepare
from relumt.prep.progress import Steps

RECORD = "corpus.json"
"""Beside the texts: what they were made of."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which corpus, from where, to where."""
    parser.add_argument("corpus", metavar="CORPUS", help=", ".join(CORPORA))
    parser.add_argument("--raw", type=Path, default=Path("raw"), help="folder of the files as published (default: raw)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the data-bin to make")
    parser.add_argument("--bpe", default="subword-nmt", choices=list(BPE_METHODS), help="kind of BPE (default: subword-nmt)")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="joint BPE merges (default: the corpus's own)")
    parser.add_argument("--without-tedx", action="store_true", help="IWSLT14: test on the 5,585 pairs that [RF] names")
    parser.add_argument("--without-misaligned", action="store_true", help="IWSLT14: test without 72 misaligned pairs")
    parser.add_argument("--overwrite", action="store_true", help="replace a data-bin made by this command")


def run(arguments: argparse.Namespace) -> None:
    """Make the texts, OUT.text, and the data-bin of them, OUT."""
    if arguments.corpus not in CORPORA:
        raise UserError(f"no corpus '{arguments.corpus}'; known: {', '.join(CORPORA)}")
    corpus = chosen(CORPORA[arguments.corpus], arguments)
    source, target = corpus.languages
    options = Options(
        source=source,
        target=target,
        bpe=arguments.bpe,
        vocab_size=corpus.merges if arguments.vocab_size is None else arguments.vocab_size,
        tokenize=False,
        tokenized_input=True,
        lowercase=corpus.lowercased,
        max_length=corpus.max_length,
        max_ratio=corpus.max_ratio,
        separate_dictionaries=False,
        separator=corpus.separator,
    )
    steps, out = Steps(), arguments.out.resolve()
    texts = out.with_name(f"{out.name}.text")
    try:
        make_texts(corpus, arguments.raw, texts, arguments.overwrite, out, steps)
        prepare({split: str(texts / split) for split in SPLITS}, out, options, arguments.overwrite, steps)
    except OSError as error:
        raise UserError(f"{error}; check the path and the space on the disk") from error


def chosen(corpus: Corpus, arguments: argparse.Namespace) -> Corpus:
    """The corpus with the test set asked for; raises UserError where it has but one."""
    if not (arguments.without_tedx or arguments.without_misaligned):
        return corpus
    if not isinstance(corpus, Iwslt14):
        raise UserError(
            f"--without-tedx and --without-misaligned are of IWSLT14, not of {arguments.corpus}; leave them out"
        )
    return replace(
        corpus, test_set=TestSet(tedx=not arguments.without_tedx, misaligned=not arguments.without_misaligned)
    )


def make_texts(corpus: Corpus, raw: Path, texts: Path, overwrite: bool, out: Path, steps: Steps) -> None:
    """Write the tokenised texts, unless they are there already.

    Raises:
        UserError: something is missing or broken in `raw`, or `texts` or the data-bin `out` is in the way.
    """
    raw.mkdir(parents=True, exist_ok=True)
    files = corpus.files(raw, steps)
    described = {
        "switches": corpus.switches(),
        "limits": [corpus.max_length, corpus.max_ratio],
        "sacremoses": version("sacremoses"),
        "raw": {path.name: file_sha256(path) for path in files},
    }
    record = texts / RECORD
    if record.is_file() and json.loads(record.read_text(encoding="utf-8")) == described:
        steps.say(f"{texts} is up to date")
        return
    for path in (texts, out):
        if path.exists() and not overwrite:
            raise UserError(f"{path}: exists, and was made otherwise; give --overwrite or another --out")
    if texts.exists() and not record.is_file():
        raise UserError(f"{texts}: not made by this command, so it is not overwritten; move it or give another --out")
    with atomic_folder(texts) as stage:
        corpus.write(raw, stage.result, stage.scratch, steps)
        (stage.result / RECORD).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
