"""`relumt prepare`: from a bitext to a data-bin. Each step reads text files and writes others."""

import platform
import shutil
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.metadata import distributions
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from relumt.corpora import bitext
from relumt.corpora.bitext import HELD_OUT, SPLITS, Inputs, PathPair, check_line_counts, side_paths, text_names
from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.document_lengths import lengths_after_cleaning, read_document_lengths, write_lengths
from relumt.corpora.options import Options
from relumt.corpora.parallel import count_words, map_chunks, progress_step, rewrite_file
from relumt.corpora.record import PREPARE_RECORD, describe_files, dictionary_path, is_up_to_date, write_record
from relumt.corpora.tokenization import lowercase, tokenize
from relumt.errors import UserError, print_status
from relumt.files import Rewrite, file_sha256, normalize_file
from relumt.folders import StagingArea, atomic_folder
from relumt.installation import describe_fairseq, prepare_fairseq_import, require_supported_fairseq

PACKAGES = ("relumt", "torch", "sacremoses", "subword-nmt", "sentencepiece")

FAIRSEQ_BATCH_MULTIPLE = 8
"""fairseq-train skips a smaller validation batch (--required-batch-size-multiple)."""


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
            versions={"python": platform.python_version(), "fairseq": describe_fairseq()} | packages,
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
            bitext.copy_side_files(files, options.languages, num_lines[split], text_folder)
        if not options.tokenized_input:
            self.copy_held_out(texts, "raw.")
        if options.tokenize or options.lowercase:
            functions = [partial(preprocess, options, code) for code in options.languages]
            texts = self.rewrite("preprocess", texts, functions)
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
            with dictionary_path(result, language).open("a", encoding="utf-8") as file:
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
            originals, paths = self.sides(self.inputs, split), side_paths(scratch, f"{split}.read", languages)
            with progress_step(f"read {split}") as advance:
                counts = [normalize_file(*pair, advance) for pair in zip(originals, paths, strict=True)]
            check_line_counts(originals, counts)
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


def preprocess(options: Options, language: str, lines: list[str]) -> list[str]:
    """Tokenize and lowercase the lines, as far as the options ask for it."""
    lines = tokenize(lines, language) if options.tokenize else lines
    return lowercase(lines) if options.lowercase else lines


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
            dictionary.save(str(dictionary_path(out, language)))
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
