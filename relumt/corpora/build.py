"""`relumt corpus`: a corpus of the papers, from the published files to a data-bin; test sets by sacreBLEU's names."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import SACREBLEU_DIR

from relumt.corpora.bitext import SPLITS, check_line_counts
from relumt.corpora.document_lengths import write_lengths
from relumt.corpora.options import Options
from relumt.corpora.prepare import prepare
from relumt.corpora.published_corpora import Corpus
from relumt.corpora.record import Scalar, describe_files, is_up_to_date, write_record
from relumt.errors import AttemptFailedError, UserError, describe_error
from relumt.files import StagingArea, atomic_folder, load_text

CORPUS_RECORD = "corpus.json"
"""File beside the texts that describes what they were made from."""


@dataclass(frozen=True)
class SacrebleuSet(Corpus):
    """A test set without training text, from sacreBLEU's cache or downloaded into it.

    The cache is ~/.sacrebleu, or the folder that the environment variable SACREBLEU names.

    Attributes:
        name: sacreBLEU's name, for example "wmt14/full".
    """

    name: str = ""

    @property
    def cache(self) -> Path:
        """The folder of the test set in sacreBLEU's cache."""
        return Path(SACREBLEU_DIR) / self.name

    def settings(self) -> dict[str, Scalar]:
        """See Corpus."""
        return {"test": self.name, "language_pair": "-".join(self.languages)}

    def download(self, raw: Path) -> list[Path]:
        """Return source, reference and, if documents are known, their identifiers, from sacreBLEU's cache."""
        dataset, pair = DATASETS[self.name], "-".join(self.languages)
        try:
            files = dict(zip(dataset.fieldnames(pair), dataset.get_files(pair), strict=True))
            references = dataset.get_reference_files(pair)
        except (Exception, SystemExit) as error:  # each format has its own; it exits after a wrong checksum
            problem = f"{self.name}: not in sacreBLEU's cache, or damaged, and not downloaded ({describe_error(error)})"
            raise AttemptFailedError(f"{problem}; delete {self.cache}, or copy it from another machine") from None
        if not references:
            raise UserError(f"--test {self.name}: sacreBLEU has no reference for {pair}")
        return [Path(files["src"]), Path(references[0]), *(Path(files[key]) for key in ("docid",) if key in files)]

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        self.write_as_test_set(self, stage.result)

    def write_as_test_set(self, corpus: Corpus, folder: Path) -> None:
        """Write this test set with its documents, preprocessed as `corpus` is, in place of another one in `folder`.

        Raises:
            UserError: the texts in sacreBLEU's cache differ in length.
        """
        for path in folder.glob("test.*"):
            path.unlink()
        source, target, *identifiers = self.download(folder)
        sides = load_text(source), load_text(target)
        check_line_counts((source, target), list(map(len, sides)))
        corpus.write_held_out("test", sides, folder)
        for path in identifiers:
            lengths = [len(list(lines)) for _, lines in groupby(load_text(path))]
            for name in ("test", "test.raw"):
                write_lengths(folder / f"{name}.docs", lengths)
        # `relumt prepare` takes raw texts of both valid and test, or of none, as for Multi30k.
        if list(folder.glob("valid.*")) and not list(folder.glob("valid.raw.*")):
            for path in folder.glob("test.raw.*"):
                path.unlink()


def find_test_set(name: str, language_pair: str | None) -> SacrebleuSet:
    """Return a test set of sacreBLEU; `language_pair` may be None if it has only one.

    Raises:
        UserError: there is no such test set, or it does not have the language pair.
    """
    if name not in DATASETS:
        similar = ", ".join(get_close_matches(name, DATASETS, cutoff=0))
        raise UserError(f"--test {name!r}: not a test set of sacreBLEU; choose another, such as {similar}")
    pairs = sorted(DATASETS[name].langpairs)
    pair = language_pair or (pairs[0] if len(pairs) == 1 else "none")
    if pair not in pairs:
        raise UserError(f"--test {name}: expected --language-pair with one of {', '.join(pairs)}; found {pair}")
    source, target = pair.split("-")
    return SacrebleuSet((source, target), name=name)


def prepare_corpus(
    corpus: Corpus, raw: Path, out: Path, bpe: str, vocab_size: int | None, overwrite: bool,
    test_set: SacrebleuSet | None = None,
) -> None:  # fmt: skip
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
    out = out.resolve()
    options = Options(
        *(*corpus.languages, bpe, vocab_size or corpus.bpe_merges),
        tokenized_input=True, lowercase=corpus.lowercased, separator=corpus.separator, **corpus.limits,
    )  # fmt: skip
    texts = out.with_name(f"{out.name}.text")
    write_texts(corpus, raw, texts, overwrite, test_set)
    prefixes = {split: str(texts / split) for split in SPLITS}
    prepare(prefixes, out, options, overwrite, corpus.punctuation_normalized)


def write_texts(corpus: Corpus, raw: Path, texts: Path, overwrite: bool, test_set: SacrebleuSet | None = None) -> None:
    """Write the tokenized texts of a corpus to the folder `texts`, unless it is up to date.

    Raises:
        UserError: a file cannot be downloaded or is invalid, or something else is at `texts`.
    """
    raw.mkdir(parents=True, exist_ok=True)
    files = [*corpus.download(raw), *(test_set.download(raw) if test_set else [])]
    inputs = describe_files({path.name: path for path in files})
    settings = corpus.settings() | (test_set.settings() if test_set else {})
    options = {**settings, **corpus.limits, "sacremoses": version("sacremoses")}
    if is_up_to_date(texts, CORPUS_RECORD, options, inputs, overwrite):
        return
    with atomic_folder(texts) as stage:
        corpus.write(raw, stage)
        if test_set:
            test_set.write_as_test_set(corpus, stage.result)
        write_record(stage.result, CORPUS_RECORD, options, inputs)
