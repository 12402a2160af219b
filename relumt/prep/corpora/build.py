"""`relumt corpus`: a corpus of the papers, from the published files to a data-bin."""

import json
from importlib.metadata import version
from pathlib import Path

from relumt.atomic_output import atomic_folder
from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.options import SPLITS, Options
from relumt.prep.pipeline import prepare

RECORD = "corpus.json"
"""File beside the texts that describes what they were made from."""


def prepare_corpus(
    corpus: Corpus,
    raw: Path,
    out: Path,
    bpe: str,
    vocab_size: int | None,
    overwrite: bool,
) -> None:
    """Create the texts `out`.text from the files in `raw`, and from these texts the data-bin `out`.

    Args:
        corpus: the corpus.
        raw: folder of the published files; missing ones are downloaded.
        out: the data-bin.
        bpe: a key of BPE_METHODS.
        vocab_size: BPE vocabulary size, None for the corpus's default.
        overwrite: replace what earlier calls created.

    Raises:
        UserError: a file cannot be downloaded or is invalid, or something else is at `out` or `out`.text.
    """
    source, target = corpus.languages
    options = Options(
        source=source,
        target=target,
        bpe=bpe,
        vocab_size=corpus.bpe_merges if vocab_size is None else vocab_size,
        tokenize=False,
        tokenized_input=True,
        lowercase=corpus.lowercased,
        max_length=corpus.max_length,
        max_ratio=corpus.max_ratio,
        separate_dictionaries=False,
        separator=corpus.separator,
    )
    texts = out.with_name(f"{out.name}.text")
    write_texts(corpus, raw, texts, out, overwrite)
    prepare({split: str(texts / split) for split in SPLITS}, out, options, overwrite)


def write_texts(corpus: Corpus, raw: Path, texts: Path, out: Path, overwrite: bool) -> None:
    """Write the tokenized texts of a corpus to the folder `texts`, unless it is up to date."""
    raw.mkdir(parents=True, exist_ok=True)
    files = corpus.download(raw)
    description = {
        "settings": corpus.settings(),
        "limits": [corpus.max_length, corpus.max_ratio],
        "sacremoses": version("sacremoses"),
        "raw": {path.name: file_sha256(path) for path in files},
    }
    record = texts / RECORD
    if record.is_file() and json.loads(record.read_text(encoding="utf-8")) == description:
        print_status(f"{texts} is up to date")
        return
    for path in (texts, out):
        if path.exists() and not overwrite:
            raise UserError(f"{path} was created with different settings; give --overwrite or another --out")
    if texts.exists() and not record.is_file():
        raise UserError(f"{texts} was not created by relumt corpus; move it or give another --out")
    with atomic_folder(texts) as stage:
        corpus.write(raw, stage)
        (stage.result / RECORD).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
