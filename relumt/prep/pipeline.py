"""The steps of `relumt prepare`, in order."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path

from relumt.atomic_output import StagingArea, atomic_folder
from relumt.console import print_status
from relumt.data.document_lengths import lengths_after_cleaning, read_document_lengths, write_lengths
from relumt.errors import UserError
from relumt.fairseq_version import require_supported_fairseq
from relumt.files import require_outside, require_replaceable_folder
from relumt.prep.binarization import add_word, binarize, describe_dictionary, require_absent
from relumt.prep.bitext import (
    PathPair,
    check_line_counts,
    check_no_empty_line,
    check_no_reserved_subword,
    check_no_reserved_word,
    check_not_in_subwords,
    clean_pairs,
    side_paths,
)
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.inputs import Inputs, copy_side_files, find_inputs
from relumt.prep.markup import remove_markup
from relumt.prep.options import HELD_OUT, SPLITS, Options
from relumt.prep.progress import progress_step
from relumt.prep.record import InputFile, describe_files, differences, read_record, require_own_files, write_record
from relumt.prep.tokenization import lowercase, tokenize
from relumt.prep.workers import Rewriting, rewrite_files
from relumt.text_files import Rewrite, normalize_file, read_clean_lines

FAIRSEQ_BATCH_MULTIPLE = 8
"""fairseq-train skips a smaller validation batch (--required-batch-size-multiple)."""

LineCounts = dict[str, int]  # by split, of either side


def prepare(
    prefixes: dict[str, str], out: Path, options: Options, overwrite: bool, punctuation_normalized: bool = False
) -> None:
    """Turn the bitexts `prefixes` (by split) into the data-bin `out`, unless it is up to date.

    Args:
        prefixes: prefix of the texts, by split.
        out: the data-bin.
        options: how to prepare it.
        overwrite: replace a data-bin that was made from other inputs or with other options.
        punctuation_normalized: whether the source's punctuation was normalized before; recorded for translation.

    Raises:
        UserError: the input is invalid, or `out` holds an input, or something else while `overwrite` is false, or
            fairseq is missing or untested.
    """
    inputs = find_inputs(prefixes, options)
    require_data_bin_path(out)
    require_outside(out, inputs.values())
    described_inputs = describe_files(inputs)
    if out.is_dir() and any(out.iterdir()):
        changes = differences(out, options, described_inputs)
        if not changes and not overwrite:
            print_status(f"{out} is up to date")
            return
        if not overwrite:
            raise UserError(f"{out} exists, but {', '.join(changes)}; give --overwrite or another --out")
        require_own_files(out)
    require_supported_fairseq()
    report_equal_texts(described_inputs, options)
    with atomic_folder(out) as stage:
        counts, num_lines = DataBinBuilder(inputs, options, stage).build()
        for name, described in describe_files(inputs).items():
            if described != described_inputs[name]:
                raise UserError(f"{described.path}: changed while it was read; start the same command again")
        names = [f"dict.{language}.txt" for language in options.languages]
        dictionaries = {name: describe_dictionary(stage.result / name) for name in names}
        write_record(stage.result, options, described_inputs, counts, dictionaries, punctuation_normalized)
    sizes = ", ".join(f"{name} {described['types']} types" for name, described in dictionaries.items())
    print_status(f"wrote {out} ({sizes})")
    if num_lines["valid"] < FAIRSEQ_BATCH_MULTIPLE:
        print_status(
            f"valid has fewer than {FAIRSEQ_BATCH_MULTIPLE} pairs, so fairseq-train cannot form a batch; add pairs"
        )


def report_equal_texts(inputs: dict[str, InputFile], options: Options) -> None:
    """Print which texts are equal: two sides of a split, or two splits, most often a mistake."""
    names = [f"{split}.{language}" for split, language in product(SPLITS, options.languages)]
    for name, other in combinations(names, 2):
        if inputs[name].sha256 == inputs[other].sha256:
            print_status(f"{name} and {other} are the same text: {inputs[name].path}, {inputs[other].path}")


def require_data_bin_path(out: Path) -> None:
    """Raise UserError unless a data-bin can be written to `out`, and fairseq can read it there.

    Nothing may be there but an empty folder or a data-bin that `relumt prepare` made.
    """
    require_replaceable_folder(out)
    if out.is_dir() and any(out.iterdir()):
        read_record(out)
    if ":" in str(out.absolute()):
        raise UserError(f"{out.absolute()}: fairseq splits the path of a data-bin at colons; choose another --out")


@dataclass(frozen=True)
class DataBinBuilder:
    """Builds a data-bin in `stage.result`.

    Each step reads the texts, {split}.{language}, from a folder and writes them to another one in `stage.scratch`.
    """

    inputs: Inputs
    options: Options
    stage: StagingArea

    def build(self) -> tuple[dict[str, object], LineCounts]:
        """Run every step that the options ask for.

        Returns:
            What each step counted, for prepare.json, and the number of pairs in the data-bin.
        """
        options, text_folder = self.options, self.stage.result / "text"
        text_folder.mkdir()
        texts, num_lines, documents = self.read()
        counts: dict[str, object] = {"read": num_lines}
        copy_side_files(self.inputs, texts, options.languages, num_lines, text_folder)
        if not options.tokenized_input:
            self.copy_held_out(texts, text_folder, "raw.")

        if options.tokenize:
            tokenizers = [partial(tokenize, language=language) for language in options.languages]
            texts = self.rewrite("tokenize", texts, num_lines, tokenizers)
        if options.lowercase:
            texts = self.rewrite("lowercase", texts, num_lines, [lowercase, lowercase])
        for name in self.text_names(HELD_OUT):
            check_no_reserved_word(texts / name, self.inputs[name])
        self.check_separator(texts)
        self.copy_held_out(texts, text_folder)

        cleaned = self.new_folder("clean")
        self.copy_held_out(texts, cleaned)
        limits = options.max_length, options.max_ratio
        kept, dropped = clean_pairs(self.sides(texts, "train"), self.sides(cleaned, "train"), *limits)
        counts["dropped"] = dict(dropped)
        texts, num_lines = cleaned, num_lines | {"train": sum(kept)}
        if "train" in documents:
            documents["train"] = lengths_after_cleaning(documents["train"], kept)
        for split, lengths in documents.items():
            write_lengths(self.stage.result / f"{split}.docs", lengths)

        if options.vocab_size is not None:
            counts["bpe"] = self.learn_bpe(self.sides(texts, "train"), options.vocab_size)
            segment = BPE_METHODS[options.bpe].load(self.stage.result)
            texts = self.rewrite("segment", texts, num_lines, [segment, segment])
            for name in self.text_names(SPLITS):
                check_no_reserved_subword(texts / name, self.inputs[name])
            for name in self.text_names(HELD_OUT):
                check_no_empty_line(texts / name, self.inputs[name])  # sentencepiece has no piece for a ▁ of its own
            self.check_separator(texts)
        self.binarize(texts)
        return counts | {"binarized": num_lines}, num_lines

    def check_separator(self, texts: Path) -> None:
        """Raise UserError if a text has the separator, which would not be told from those between sentences."""
        if self.options.separator is not None:
            for name in self.text_names(SPLITS):
                require_absent(self.options.separator, texts / name, self.inputs[name])

    def new_folder(self, step: str) -> Path:
        """Create a scratch folder for the texts that a step writes."""
        folder = self.stage.scratch / step
        folder.mkdir()
        return folder

    def sides(self, texts: Path, split: str) -> PathPair:
        """Return the source and target file of a split."""
        return side_paths(texts, split, self.options.languages)

    def originals(self, split: str) -> PathPair:
        """Return the user's source and target file of a split."""
        return self.inputs[f"{split}.{self.options.source}"], self.inputs[f"{split}.{self.options.target}"]

    def text_names(self, splits: Sequence[str]) -> list[str]:
        """Return the names of both texts of each split."""
        return [f"{split}.{language}" for split, language in product(splits, self.options.languages)]

    def copy_held_out(self, texts: Path, folder: Path, infix: str = "") -> None:
        """Copy the texts of valid and test, as {split}.{infix}{language}."""
        for split, language in product(HELD_OUT, self.options.languages):
            shutil.copyfile(texts / f"{split}.{language}", folder / f"{split}.{infix}{language}")

    def read(self) -> tuple[Path, LineCounts, dict[str, list[int]]]:
        """Normalize the texts; return their folder and line counts, and the document lengths that are known.

        Raises:
            UserError: the input is not a bitext.
        """
        texts = self.new_folder("read")
        num_lines = {split: self.normalize(split, texts) for split in SPLITS}
        for name in self.text_names(HELD_OUT):
            check_no_empty_line(texts / name, self.inputs[name])
        for name in self.text_names(SPLITS):
            check_not_in_subwords(texts / name, self.inputs[name])
        if self.options.documents is None:
            found = {split: path for split in SPLITS if (path := self.inputs.get(f"{split}.docs"))}
            documents = {split: read_document_lengths(path, num_lines[split]) for split, path in found.items()}
            return texts, num_lines, documents
        unmarked = self.new_folder("unmarked")
        documents = {
            split: remove_markup(
                self.options.documents, self.sides(texts, split), self.sides(unmarked, split), self.originals(split)
            )
            for split in SPLITS
        }
        return unmarked, {split: sum(lengths) for split, lengths in documents.items()}, documents

    def normalize(self, split: str, texts: Path) -> int:
        """Write the normalized texts of a split; return the number of lines of either side."""
        originals, paths = self.originals(split), self.sides(texts, split)
        with progress_step(f"read {split}") as advance:
            counts = [normalize_file(original, path, advance) for original, path in zip(originals, paths, strict=True)]
        check_line_counts(originals, counts, lambda side: read_clean_lines(paths[side]))
        return counts[0]

    def rewrite(self, step: str, texts: Path, num_lines: LineCounts, functions: Sequence[Rewrite]) -> Path:
        """Rewrite source texts with the first of `functions` and target texts with the second; return the folder."""
        folder = self.new_folder(step)
        with progress_step(f"{step} text", 2 * sum(num_lines.values())) as advance:
            rewrite_files(
                [
                    Rewriting(path, folder / path.name, function)
                    for split in SPLITS
                    for path, function in zip(self.sides(texts, split), functions, strict=True)
                ],
                advance,
            )
        return folder

    def learn_bpe(self, train: PathPair, vocab_size: int) -> int:
        """Learn BPE on both sides of the training set; return the vocabulary size that was reached."""
        with progress_step(f"learn {self.options.bpe} of {vocab_size}", vocab_size) as advance:
            return BPE_METHODS[self.options.bpe].learn(train, vocab_size, self.stage.result, advance)

    def binarize(self, texts: Path) -> None:
        """Write dictionaries and binary files."""
        options, folder = self.options, self.stage.result
        with progress_step("binarize"):
            binarize(texts, options.languages, folder, not options.separate_dictionaries)
        if options.separator is not None:
            for language in options.languages:
                add_word(options.separator, folder / f"dict.{language}.txt")
