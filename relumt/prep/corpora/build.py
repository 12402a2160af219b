"""`relumt corpus`: a corpus of the papers, from the published files to a data-bin."""

import json
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from relumt.atomic_output import atomic_folder
from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import changed_files, file_sha256, require_only, require_outside, require_replaceable_folder
from relumt.json_files import read_json
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.sacrebleu_set import SacrebleuSet
from relumt.prep.options import SPLITS, Options
from relumt.prep.pipeline import prepare, require_data_bin_path

CORPUS_RECORD = "corpus.json"
"""File beside the texts that describes what they were made from."""

JsonScalar = str | int | float | bool | None


@dataclass(frozen=True)
class CorpusRecord:
    """What texts were made from.

    Attributes:
        settings: what the user chose about the corpus.
        limits: maximum length and length ratio of training pairs.
        sacremoses: version of the tokenizer.
        raw: SHA-256 of each published file by name.
        texts: SHA-256 of each file that was written, by name; None in folders of earlier versions.
    """

    settings: dict[str, JsonScalar]
    limits: tuple[float, float]
    sacremoses: str
    raw: dict[str, str]
    texts: dict[str, str] | None = None


def prepare_corpus(
    corpus: Corpus,
    raw: Path,
    out: Path,
    bpe: str,
    vocab_size: int | None,
    overwrite: bool,
    test_set: SacrebleuSet | None = None,
) -> None:
    """Create the texts `out`.text from the files in `raw`, and from these texts the data-bin `out`.

    Args:
        corpus: the corpus.
        raw: folder of the published files; missing ones are downloaded.
        out: the data-bin.
        bpe: a key of BPE_METHODS.
        vocab_size: BPE vocabulary size, None for the corpus's default.
        overwrite: replace what earlier calls created.
        test_set: the test set in place of that of the corpus, None for that of the corpus.

    Raises:
        UserError: a file cannot be downloaded or is invalid, or something else is at `out` or `out`.text.
    """
    require_data_bin_path(out)
    out = out.resolve()
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
    write_texts(corpus, raw, texts, out, overwrite, test_set)
    prefixes = {split: str(texts / split) for split in SPLITS}
    prepare(prefixes, out, options, overwrite, corpus.punctuation_normalized)


def write_texts(
    corpus: Corpus, raw: Path, texts: Path, out: Path, overwrite: bool, test_set: SacrebleuSet | None = None
) -> None:
    """Write the tokenized texts of a corpus to the folder `texts`, unless it is up to date; `out` is its data-bin.

    Raises:
        UserError: a file cannot be downloaded or is invalid, or something else is at `texts` or `out`.
    """
    require_replaceable_folder(texts)
    for folder in (texts, out):
        require_outside(folder, [raw])
    raw.mkdir(parents=True, exist_ok=True)
    files = [*corpus.download(raw), *(test_set.download(raw) if test_set else [])]
    for folder in (texts, out):
        require_outside(folder, files)
    checksums = {path.name: file_sha256(path) for path in files}
    limits = corpus.max_length, corpus.max_ratio
    settings = corpus.settings() | (test_set.settings() if test_set else {})
    described = CorpusRecord(settings, limits, version("sacremoses"), checksums)
    record = texts / CORPUS_RECORD
    if texts.exists() and not record.is_file():
        raise UserError(f"{texts} was not created by relumt corpus; move it or give another --out")
    if record.is_file():
        found = read_json(record, CorpusRecord, f"delete {texts}, or give another --out")
        has_same_origin = replace(found, texts=None) == described
        changed = changed_files(texts, found.texts or {})
        if has_same_origin and not changed:
            print_status(f"{texts} is up to date")
            return
        if not overwrite and has_same_origin:
            raise UserError(f"{texts / changed[0]} is not as it was written; give --overwrite or another --out")
        if not overwrite:
            raise UserError(f"{texts} was created with different settings; give --overwrite or another --out")
        if found.texts:
            require_only(texts, [CORPUS_RECORD, *found.texts], "relumt corpus")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise UserError(
            f"{out} exists without {texts}, from which it was made; give --overwrite to create both again, or another "
            "--out"
        )
    with atomic_folder(texts) as stage:
        corpus.write(raw, stage)
        if test_set:
            test_set.write_as_test_set(corpus, raw, stage.result)
        written = {path.name: file_sha256(path) for path in sorted(stage.result.iterdir())}
        described = replace(described, texts=written)
        (stage.result / CORPUS_RECORD).write_text(json.dumps(asdict(described), indent=2) + "\n", encoding="utf-8")
