"""`relumt prepare`: from a bitext to a data-bin. Each step reads text files and writes others."""

import platform
import shutil
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from importlib.metadata import distributions
from itertools import combinations, cycle
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn

from relumt.console import print_status
from relumt.corpora import bitext
from relumt.corpora.bitext import HELD_OUT, SPLITS, Inputs, PathPair, check_line_counts, side_paths, text_names
from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.document_lengths import lengths_after_cleaning, read_document_lengths, write_lengths
from relumt.corpora.options import Options
from relumt.corpora.parallel import count_words, map_chunks, rewrite_file
from relumt.corpora.tokenization import lowercase, tokenize
from relumt.errors import UserError
from relumt.fairseq_version import describe_fairseq, prepare_fairseq_import, require_supported_fairseq
from relumt.files import StagingArea, atomic_folder, changed_files, encode_json, file_sha256, read_json
from relumt.text_files import Advance, Rewrite, normalize_file, read_clean_lines

PREPARE_RECORD = "prepare.json"
PACKAGES = ("relumt", "torch", "sacremoses", "subword-nmt", "sentencepiece")

FAIRSEQ_BATCH_MULTIPLE = 8
"""fairseq-train skips a smaller validation batch (--required-batch-size-multiple)."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class InputFile:
    """A file that a folder was made from: its path and the SHA-256 of its content."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """What a folder was made from; the file with it may say more.

    Attributes:
        options: what the user chose.
        inputs: the input files by name (`train.de`).
        files: SHA-256 of every other file of the folder by its path there.
    """

    options: dict[str, Scalar]
    inputs: dict[str, InputFile]
    files: dict[str, str] = field(default_factory=dict)


def describe_files(files: Inputs) -> dict[str, InputFile]:
    """Return path and SHA-256 of each file, by its name (`train.de`, `train.docs` ...)."""
    return {name: InputFile(str(path), file_sha256(path)) for name, path in files.items()}


def is_up_to_date(
    out: Path, name: str, options: dict[str, Scalar], inputs: dict[str, InputFile], overwrite: bool, force: bool = False
) -> bool:
    """Return whether the folder `out`, as the record `name` in it says, was made from these inputs with these options.

    Args:
        out: the folder.
        name: name of the file with its record.
        options: what the user chose.
        inputs: the input files.
        overwrite: whether a folder that is out of date may be replaced.
        force: replace one that is up to date, too.

    Raises:
        UserError: it may not be replaced, or relumt did not make it, or replacing it would delete files of others.
    """
    if not out.is_dir() or not any(out.iterdir()):
        return False
    try:
        record = read_json(out / name, Record, "choose another --out, or delete the folder")
    except FileNotFoundError:
        raise UserError(f"{out}: exists but was not created by this command; choose another --out") from None
    changed = [key for key in options.keys() | record.options if record.options.get(key) != options.get(key)]
    changes = [f"{key} was {record.options.get(key)}, now {options.get(key)}" for key in sorted(changed)]
    sums, recorded = ({key: file.sha256 for key, file in files.items()} for files in (inputs, record.inputs))
    changes += [f"{key} has changed" for key in sorted(sums.keys() | recorded) if sums.get(key) != recorded.get(key)]
    changes = changes or [f"{path} is not as it was written" for path in changed_files(out, record.files)]
    if not changes and not force:
        print_status(f"{out} is up to date")
        return True
    if not overwrite:
        raise UserError(f"{out} exists, but {', '.join(changes)}; give --overwrite or another --out")
    paths = (path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if not path.is_dir())
    if foreign := [path for path in paths if path not in {name, *record.files}]:
        raise UserError(f"{out}: --overwrite would delete {', '.join(foreign[:3])}, which this command did not write")
    return False


def write_record(
    folder: Path, name: str, options: dict[str, Scalar], inputs: dict[str, InputFile], **more: object
) -> None:
    """Write the record of a complete folder; `more` are further fields, which come first."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}
    (folder / name).write_text(encode_json(more | asdict(Record(options, inputs, files))), encoding="utf-8")


@contextmanager
def progress_step(
    title: str, total: int | None = None, amount: type[ProgressColumn] = MofNCompleteColumn
) -> Iterator[Advance]:
    """Show a bar of `total` items on a terminal while the block runs, then print how long it took.

    The block receives a function that advances the bar. Give `amount=DownloadColumn` if the items are bytes.
    """
    started = time.monotonic()
    console = Console(stderr=True)
    columns = *Progress.get_default_columns(), amount()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=total)
        yield lambda items: bars.advance(task, items)
    print_status(f"{title} ({time.monotonic() - started:.1f} s)")


def prepare(
    prefixes: dict[str, str], out: Path, options: Options, overwrite: bool, punctuation_normalized: bool = False
) -> None:
    """Turn the bitexts `prefixes` (by split) into the data-bin `out`, unless it is up to date.

    prepare.json's first fields say what to undo before scoring. `tokenized` is true for Moses-tokenized text, whether
    it was tokenized here or before. `plain_references` says that text/ also has the held-out texts before tokenization.
    `bpe_sha256` is the checksum of the merges or the model, with which translation splits words again.

    Args:
        prefixes: prefix of the texts, by split.
        out: the data-bin.
        options: how to prepare it.
        overwrite: replace a data-bin that this function made.
        punctuation_normalized: whether the source's punctuation was normalized before; recorded for translation.

    Raises:
        UserError: the input is invalid, or `out` holds something else, or fairseq is missing or untested.
    """
    if ":" in str(out.absolute()):
        raise UserError(f"{out.absolute()}: fairseq splits the path of a data-bin at colons; choose another --out")
    inputs = bitext.find_inputs(prefixes, options)
    described, chosen = describe_files(inputs), asdict(options)
    if is_up_to_date(out, PREPARE_RECORD, chosen, described, overwrite, force=overwrite):
        return
    require_supported_fairseq()
    for name, other in combinations(text_names(options.languages), 2):  # most often a mistake
        if described[name].sha256 == described[other].sha256:
            print_status(f"{name} and {other} are the same text: {inputs[name]}, {inputs[other]}")
    with atomic_folder(out) as stage:
        counts = DataBinBuilder(inputs, options, stage).build()
        packages = {found.name: found.version for found in distributions() if found.name in PACKAGES}
        write_record(
            *(stage.result, PREPARE_RECORD, chosen, described),
            source=options.source,
            target=options.target,
            tokenized=options.tokenize or options.tokenized_input,
            lowercased=options.lowercase,
            punctuation_normalized=punctuation_normalized,
            bpe=options.bpe,
            bpe_sha256=None if options.bpe == "none" else file_sha256(stage.result / BPE_METHODS[options.bpe].file),
            plain_references=not options.tokenized_input or f"test.raw.{options.target}" in inputs,
            counts=counts,
            versions={"python": platform.python_version(), "fairseq": str(describe_fairseq())} | packages,
        )
    sizes = (counts["types"][language] for language in options.languages)
    print_status(f"wrote {out} ({', '.join(f'{size} types' for size in sizes)})")
    if counts["binarized"]["valid"] < FAIRSEQ_BATCH_MULTIPLE:
        print_status(f"valid has less than {FAIRSEQ_BATCH_MULTIPLE} pairs, too few for fairseq-train; add pairs")


@dataclass(frozen=True)
class DataBinBuilder:
    """Builds a data-bin in `stage.result`; each step writes texts by name ({split}.{language}) to `stage.scratch`."""

    inputs: Inputs
    options: Options
    stage: StagingArea

    def build(self) -> dict[str, Any]:
        """Run every step that the options ask for; return what each step counted."""
        options, result = self.options, self.stage.result
        text_folder = result / "text"
        text_folder.mkdir()
        texts, num_lines, documents = self.read()
        counts: dict[str, Any] = {"read": num_lines}
        for split in HELD_OUT:
            files = {name: path for name, path in self.inputs.items() if name.startswith(f"{split}.")}
            bitext.copy_side_files(files, self.sides(texts, split), options.languages, num_lines[split], text_folder)
        if not options.tokenized_input:
            self.copy_held_out(texts, "raw.")
        if options.tokenize:
            texts = self.rewrite("tokenize", texts, [partial(tokenize, language=code) for code in options.languages])
        if options.lowercase:
            texts = self.rewrite("lowercase", texts, [lowercase, lowercase])
        self.copy_held_out(texts)
        cleaned = side_paths(self.stage.scratch, "clean", options.languages)
        kept, dropped = bitext.clean_pairs(self.sides(texts, "train"), cleaned, options.max_length, options.max_ratio)
        texts |= zip(text_names(options.languages, ["train"]), cleaned, strict=True)
        self.check(texts)
        if "train" in documents:
            documents["train"] = lengths_after_cleaning(documents["train"], kept)
        for split, lengths in documents.items():
            write_lengths(result / f"{split}.docs", lengths)
        counts["dropped"] = dict(dropped)
        if options.vocab_size is not None:
            method = BPE_METHODS[options.bpe]
            with progress_step(f"learn {options.bpe} of {options.vocab_size}", options.vocab_size) as advance:
                counts["bpe"] = method.learn(self.sides(texts, "train"), options.vocab_size, result, advance)
            texts = self.rewrite("segment", texts, [method.load(result)] * 2)
            self.check(texts)
        with progress_step("binarize"):
            counts["types"] = binarize(texts, options.languages, result, not options.separate_dictionaries)
        for language in options.languages if options.separator else ():
            with (result / f"dict.{language}.txt").open("a", encoding="utf-8") as file:
                file.write(f"{options.separator} 1\n")  # last: the indices of the other words do not change
        return counts | {"binarized": num_lines | {"train": sum(kept)}}

    def read(self) -> tuple[Inputs, dict[str, int], dict[str, list[int]]]:
        """Normalize the texts; return them, their line counts, and the document lengths that are known.

        Raises:
            UserError: the input is not a bitext.
        """
        kind, languages, scratch = self.options.documents, self.options.languages, self.stage.scratch
        texts: Inputs = {}
        documents, num_lines = {}, {}
        for split in SPLITS:
            originals, paths = (
                self.sides(self.inputs, split),
                side_paths(self.stage.scratch, f"{split}.read", languages),
            )
            with progress_step(f"read {split}") as advance:
                counts = [normalize_file(*pair, advance) for pair in zip(originals, paths, strict=True)]
            check_line_counts(originals, counts, list(map(read_clean_lines, paths)).__getitem__)
            list(map(bitext.check_not_in_subwords, paths, originals))
            num_lines[split] = counts[0]
            if kind:
                marked, paths = paths, side_paths(scratch, f"{split}.unmarked", languages)
                documents[split] = bitext.remove_markup(kind, marked, paths, originals)
                num_lines[split] = sum(documents[split])
            elif f"{split}.docs" in self.inputs:
                documents[split] = read_document_lengths(self.inputs[f"{split}.docs"], counts[0])
            texts |= zip(text_names(languages, [split]), paths, strict=True)
        self.check(texts, HELD_OUT)  # before steps that take hours
        return texts, num_lines, documents

    def check(self, texts: Inputs, splits: Sequence[str] = SPLITS) -> None:
        """Raise UserError if fairseq could not use a line of the texts."""
        for name in text_names(self.options.languages, splits):
            bitext.check_lines(texts[name], self.inputs[name], not name.startswith("train."), self.options.separator)

    def sides(self, texts: Inputs, split: str) -> PathPair:
        """Return the source and target file of a split."""
        return texts[f"{split}.{self.options.source}"], texts[f"{split}.{self.options.target}"]

    def copy_held_out(self, texts: Inputs, infix: str = "") -> None:
        """Copy the texts of valid and test to text/ of the data-bin, as {split}.{infix}{language}."""
        for name in text_names(self.options.languages, HELD_OUT):
            shutil.copyfile(texts[name], self.stage.result / "text" / name.replace(".", f".{infix}", 1))

    def rewrite(self, step: str, texts: Inputs, functions: Sequence[Rewrite]) -> Inputs:
        """Rewrite source texts with the first of `functions` and target texts with the second."""
        rewritten = {}
        with progress_step(f"{step} text") as advance:
            for name, function in zip(text_names(self.options.languages), cycle(functions), strict=False):
                rewritten[name] = self.stage.scratch / f"{step}.{name}"
                rewrite_file(texts[name], rewritten[name], function, advance)
        return rewritten


def binarize(texts: Inputs, languages: tuple[str, str], out: Path, joined: bool) -> dict[str, int]:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    They have the bytes that fairseq-preprocess would write, in a twentieth of its time: fairseq looks up and stores one
    token at a time.

    Args:
        texts: the texts by name, {split}.{language}.
        languages: language codes, source first.
        out: the data-bin.
        joined: use one dictionary for both languages.

    Returns:
        The number of types of each language, including fairseq's special symbols.
    """
    prepare_fairseq_import()
    from fairseq.data import Dictionary  # takes seconds
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    num_types = {}
    for group in [languages] if joined else [(language,) for language in languages]:
        dictionary = Dictionary()
        for word, count in count_words([texts[f"train.{language}"] for language in group]).items():
            dictionary.add_symbol(word, count)
        dictionary.finalize()
        dtype = best_fitting_int_dtype(len(dictionary))
        encode = partial(_encode, "\n".join(dictionary.symbols), dictionary.unk(), dictionary.eos(), dtype)
        for language in group:
            num_types[language] = len(dictionary)
            dictionary.save(str(out / f"dict.{language}.txt"))
            for split in SPLITS:
                prefix, sizes = out / f"{split}.{'-'.join(languages)}.{language}", array("i")
                with Path(f"{prefix}.bin").open("wb") as file:
                    for indices, sentence_sizes in map_chunks(encode, [texts[f"{split}.{language}"]]):
                        file.write(indices)
                        sizes.extend(sentence_sizes)
                with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
                    index.write(sizes)
    return num_types


def _encode(words: str, unknown: int, end: int, dtype: type, lines: list[str]) -> tuple[bytes, "array[int]"]:
    """Return the indices of the lines' words, as bytes of `dtype`, and the length of each line with its end.

    Args:
        words: the words of the dictionary, one per line.
        unknown: index of the unknown word.
        end: index of the end of a sentence.
        dtype: NumPy type of an index.
        lines: the lines to encode.
    """
    index_of = _index_words(words).get
    indices, sizes = array("q"), array("i")
    for line in lines:
        sentence = line.split()
        indices.extend([index_of(word, unknown) for word in sentence])
        indices.append(end)
        sizes.append(len(sentence) + 1)
    return np.array(indices, dtype).tobytes(), sizes


@lru_cache(1)
def _index_words(words: str) -> dict[str, int]:
    return {word: index for index, word in enumerate(words.split("\n"))}
