"""Turn a corpus of the papers into a data-bin, as they prepared it; `data_prep/` has a script for each.

RAW holds the files that the corpus's makers publish, packed as they are or unpacked.
"""

import argparse
import tarfile
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.corpora import iwslt14
from relumt.prep.options import Options
from relumt.prep.pipeline import prepare
from relumt.prep.progress import Steps
from relumt.prep.staging import staged

CORPORA = ("iwslt14_de_en",)
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
    """Make the texts beside the data-bin, and the data-bin of them."""
    if arguments.corpus not in CORPORA:
        raise UserError(f"no corpus '{arguments.corpus}'; known: {', '.join(CORPORA)}")
    which = iwslt14.TestSet(tedx=not arguments.without_tedx, misaligned=not arguments.without_misaligned)
    steps = Steps()
    texts = arguments.out.with_name(f"{arguments.out.name}.text")
    with staged(texts) as stage:
        raw = unpacked(arguments.raw, stage.scratch, steps)
        iwslt14.write_test(raw, stage.result, which)
        iwslt14.write_train_and_valid(raw, stage.result, stage.scratch, steps)
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
    prefixes = {split: str(texts / split) for split in ("train", "valid", "test")}
    prepare(prefixes, arguments.out, options, arguments.overwrite, steps)


def unpacked(raw: Path, scratch: Path, steps: Steps) -> Path:
    """A folder with the files themselves: `raw`, or where its archive was unpacked to.

    Raises:
        UserError: neither is there, or the archive is broken.
    """
    archive = raw / IWSLT14_ARCHIVE
    if not archive.is_file():
        if not raw.is_dir():
            raise UserError(f"{archive}: no such file; get {IWSLT14_SOURCE} and put it there")
        return raw
    try:
        with steps.step(f"unpack {archive}"), tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{archive}: broken ({reason}); get {IWSLT14_SOURCE} again") from None
    return scratch
