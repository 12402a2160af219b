"""`relumt corpus`: a corpus of the papers, from the published files to a data-bin."""

from importlib.metadata import version
from pathlib import Path

from relumt.corpora.bitext import SPLITS
from relumt.corpora.options import Options
from relumt.corpora.prepare import prepare
from relumt.corpora.published_corpora import Corpus
from relumt.corpora.record import describe_files, is_up_to_date, write_record
from relumt.folders import atomic_folder

CORPUS_RECORD = "corpus.json"
"""File beside the texts that describes what they were made from."""


def prepare_corpus(corpus: Corpus, raw: Path, out: Path, bpe: str, vocab_size: int | None, overwrite: bool) -> None:
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
    out = out.resolve()
    options = Options(
        *(*corpus.languages, bpe, vocab_size or corpus.bpe_merges),
        tokenized_input=True, lowercase=corpus.lowercased, separator=corpus.separator, **corpus.limits,
    )  # fmt: skip
    texts = out.with_name(f"{out.name}.text")
    write_texts(corpus, raw, texts, overwrite)
    prefixes = {split: str(texts / split) for split in SPLITS}
    prepare(prefixes, out, options, overwrite, corpus.punctuation_normalized)


def write_texts(corpus: Corpus, raw: Path, texts: Path, overwrite: bool) -> None:
    """Write the tokenized texts of a corpus to the folder `texts`, unless it is up to date.

    Raises:
        UserError: a file cannot be downloaded or is invalid, or something else is at `texts`.
    """
    raw.mkdir(parents=True, exist_ok=True)
    inputs = describe_files({path.name: path for path in corpus.download(raw)})
    options = {**corpus.settings(), **corpus.limits, "sacremoses": version("sacremoses")}
    if is_up_to_date(texts, CORPUS_RECORD, options, inputs, overwrite):
        return
    with atomic_folder(texts) as stage:
        corpus.write(raw, stage)
        write_record(stage.result, CORPUS_RECORD, options, inputs)
