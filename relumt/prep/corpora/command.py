"""Turn a corpus of the papers into a data-bin, as they prepared it; `data_prep/` has a script for each.

RAW holds the files that the corpus's makers publish, packed as they are or unpacked.
"""

import argparse
import json
import tarfile
from dataclasses import asdict
from pathlib import Path

from relumt.errors import UserError
from relumt.files import sha256
from relumt.prep.corpora import iwslt14
from relumt.prep.options import SPLITS, Options
from relumt.prep.pipeline import prepare
from relumt.prep.progress import Steps
from relumt.prep.staging import staged

CORPORA = ("iwslt14_de_en",)
RECORD = "corpus.json"
"""Beside the texts: what they were made of."""

IWSLT14_ARCHIVE = "de-en.tgz"
IWSLT14_SOURCE = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which corpus, from where, to where."""
    parser.add_argument("corpus", metavar="CORPUS", help=", ".join(CORPORA))
    parser.add_argument("--raw", type=Path, required=True, help="folder of the files as published")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the data-bin to make")
    parser.add_argument("--vocab-size", type=int, default=10_000, help="joint BPE merges (default: 10000)")
    parser.add_argument("--without-tedx", action="store_true", help="test on the 5,585 pairs that [RF] names")
    parser.add_argument("--without-misaligned", action="store_true", help="leave 72 misaligned pairs out of the test")
    parser.add_argument("--overwrite", action="store_true", help="replace a data-bin made by this command")


def run(arguments: argparse.Namespace) -> None:
    """Make the texts, OUT.text, and the data-bin of them, OUT."""
    if arguments.corpus not in CORPORA:
        raise UserError(f"no corpus '{arguments.corpus}'; known: {', '.join(CORPORA)}")
    options = Options(
        source="de",
        target="en",
        bpe="subword-nmt",
        vocab_size=arguments.vocab_size,
        tokenize=False,
        tokenized_input=True,
        lowercase=True,
        max_length=iwslt14.MAX_LENGTH,
        max_ratio=iwslt14.MAX_RATIO,
        separate_dictionaries=False,
    )
    which = iwslt14.TestSet(tedx=not arguments.without_tedx, misaligned=not arguments.without_misaligned)
    steps, out = Steps(), arguments.out.resolve()
    texts = out.with_name(f"{out.name}.text")
    try:
        make_texts(arguments.raw, texts, which, arguments.overwrite, out, steps)
        prepare({split: str(texts / split) for split in SPLITS}, out, options, arguments.overwrite, steps)
    except OSError as error:
        raise UserError(f"{error}; check the path and the space on the disk") from error


def make_texts(raw: Path, texts: Path, which: iwslt14.TestSet, overwrite: bool, out: Path, steps: Steps) -> None:
    """Write the tokenised texts, unless they are there already.

    Raises:
        UserError: something is missing or broken in `raw`, or `texts` or the data-bin `out` is in the way.
    """
    published = iwslt14_files(raw)
    described = {"test_set": asdict(which), "raw": {path.name: sha256(path) for path in published}}
    record = texts / RECORD
    if record.is_file() and json.loads(record.read_text(encoding="utf-8")) == described:
        steps.say(f"{texts} is up to date")
        return
    for path in (texts, out):
        if path.exists() and not overwrite:
            raise UserError(f"{path}: exists, and was made otherwise; give --overwrite or another --out")
    with staged(texts) as stage:
        files = unpacked(raw, stage.scratch, steps)
        iwslt14.write_test(files, stage.result, which)
        iwslt14.write_train_and_valid(files, stage.result, stage.scratch, steps)
        (stage.result / RECORD).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def iwslt14_files(raw: Path) -> list[Path]:
    """The archive in `raw`, or the files that it would hold; raises UserError if neither is there."""
    archive = raw / IWSLT14_ARCHIVE
    if archive.is_file():
        return [archive]
    if not raw.is_dir():
        raise UserError(f"{archive}: no such file; get {IWSLT14_SOURCE} and put it there")
    return iwslt14.published(raw)


def unpacked(raw: Path, scratch: Path, steps: Steps) -> Path:
    """A folder with the files themselves: `raw`, or where its archive was unpacked to; UserError if that is broken."""
    archive = raw / IWSLT14_ARCHIVE
    if not archive.is_file():
        return raw
    try:
        with steps.step(f"unpack {archive}"), tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{archive}: broken ({reason}); get {IWSLT14_SOURCE} again") from None
    return scratch
