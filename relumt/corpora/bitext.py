"""A bitext: its files, which are read and checked once, and its cleaning."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from relumt.corpora.alignment import format_alignment, read_source_first
from relumt.errors import UserError, print_status
from relumt.files import normalize_file, normalize_line, open_text, read_clean_lines, read_json, read_lines, write_lines

if TYPE_CHECKING:
    from relumt.corpora.options import Options

SPLITS = ("train", "valid", "test")
HELD_OUT = ("valid", "test")

PathPair = tuple[Path, Path]  # source and target file

# In a text, fairseq would read these as its special symbols: an end or padding in the middle of a sentence.
RESERVED_WORDS = frozenset({"<s>", "</s>", "<pad>"})
RESERVED_WORD = re.compile(rf"(?<!\S)({'|'.join(sorted(RESERVED_WORDS))})(?!\S)")

MAX_SHARE_IN_SUBWORDS = 0.25
"""Text that BPE has split has a marker of subwords in most lines; other text hardly ever has one."""

MAX_WORD_LENGTH = 1000
"""Characters. Moses's clean-corpus-n drops sentences with longer words, for which learning BPE takes hours."""

MARKUPS = {
    "d": (re.compile(r"<d>"), re.compile(r"<d>")),
    "europarl": (re.compile(r"<(CHAPTER|SPEAKER|P)\b.*>"), re.compile(r"<CHAPTER\b")),
}
"""Kind of document markup → what matches a line of markup, and what matches one that begins a document.

d: a line <d> before each document (Maruf et al. 2019). europarl: as released; each chapter is a document.
"""

Subsets = dict[str, list[int]]
"""Subsets of a test set, which are scored in addition to it: name → numbers of the excluded lines, from 0."""

SubsetsFile = dict[Annotated[str, Meta(min_length=1, max_length=200)], list[Annotated[int, Meta(ge=0)]]]

Inputs = dict[str, Path]
"""Input files by name. {split}.{language} is always there, the others only if the user has them:

{split}.docs            lengths of the documents
valid|test.raw.{language}   of a tokenized text, the text before tokenization
valid|test.subsets.json     subsets of a test set
valid|test.align        gold word alignments
"""


def side_paths(folder: Path, name: str, languages: Sequence[str]) -> PathPair:
    """Return the paths `folder`/NAME.LANGUAGE of both sides of a bitext."""
    source, target = (folder / f"{name}.{language}" for language in languages)
    return source, target


def find_text_file(prefix: str, language: str) -> Path:
    """Return the path of `prefix.language` or `prefix.language.gz`; raises `UserError` unless one of them is there."""
    plain, compressed = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    if plain.exists() or compressed.exists():
        return plain if plain.exists() else compressed
    raise UserError(f"{plain}: no such file, nor {compressed}; pass a prefix P such that P.{language} is the text")


def find_inputs(prefixes: dict[str, str], options: "Options") -> Inputs:
    """Find the input files that start with `prefixes` (by split).

    Raises:
        UserError: a text is missing, or gold alignments are ambiguous or would not fit the tokenized text.
    """
    source, target = languages = options.languages
    inputs = {f"{split}.{lang}": find_text_file(prefixes[split], lang) for split in SPLITS for lang in languages}
    for split in SPLITS:
        if (path := Path(f"{prefixes[split]}.docs")).exists():
            inputs[f"{split}.docs"] = path
    for split, prefix in ((split, prefixes[split]) for split in HELD_OUT):
        if (path := Path(f"{prefix}.subsets.json")).exists():
            inputs[f"{split}.subsets.json"] = path
        # P.TGT-SRC.align gives the target word first, because it was made for the opposite translation direction.
        names = (f"{prefix}.align", f"{prefix}.{source}-{target}.align", f"{prefix}.{target}-{source}.align")
        found = [path for path in map(Path, names) if path.exists()]
        if len(found) > 1:
            raise UserError(f"{found[0]} and {found[1]} are both alignments of {prefix}; remove one")
        if found and options.tokenize:
            raise UserError(f"{found[0]}: --tokenize would change the words; tokenize before, with --tokenized-input")
        inputs |= {f"{split}.align": path for path in found}
    raw = {f"{split}.raw.{lang}": Path(f"{prefixes[split]}.raw.{lang}") for split in HELD_OUT for lang in languages}
    if options.tokenized_input and any(path.exists() for path in raw.values()):
        inputs |= raw  # all of them, because scores are computed on the same kind of text for both splits
    return inputs


def write_subsets(path: Path, subsets: Subsets) -> None:
    """Write the subsets of a test set."""
    path.write_text(json.dumps(subsets, ensure_ascii=False) + "\n", encoding="utf-8")


def read_subsets(path: Path, num_lines: int) -> Subsets:
    """Return the subsets of a text of `num_lines` lines, none if there is no such file.

    Raises:
        UserError: the file is malformed, or a subset excludes a line that the text does not have, or all.
    """
    advice = f"write {{name: [excluded lines]}} for a text of {num_lines} lines, numbered from 0, or remove the file"
    subsets = read_json(path, SubsetsFile, advice) if path.exists() else {}
    for name, excluded in subsets.items():
        if max(excluded, default=0) >= num_lines or len(set(excluded)) == num_lines:
            raise UserError(f"{path}: {name!r} excludes line {max(excluded)}, or every line; {advice}")
    return subsets


def copy_side_files(inputs: Inputs, languages: tuple[str, str], num_lines: int, folder: Path) -> None:
    """Copy what the evaluation of a split needs besides its texts to `folder`.

    Args:
        inputs: the input files of the split, by name.
        languages: language codes, source first.
        num_lines: number of lines of its text.
        folder: text/ of the data-bin.

    Raises:
        UserError: a file does not fit the text.
    """
    for name, path in inputs.items():
        if ".raw." in name:
            if (count := normalize_file(path, folder / name, lambda _: None)) != num_lines:
                raise UserError(f"{path} has {count} lines, but the tokenized text has {num_lines}; fix it")
            check_lines(folder / name, path, is_held_out=True)
        elif name.endswith(".subsets.json"):
            read_subsets(path, num_lines)
            (folder / name).write_bytes(path.read_bytes())
        elif name.endswith(".align"):
            alignments = read_source_first(path, languages, num_lines)
            for language in languages:
                check_word_counts(inputs[name.replace("align", language)], path)
            write_lines(folder / name, map(format_alignment, alignments))


def check_word_counts(original: Path, alignment: Path) -> None:
    """Raise UserError if normalization changes the number of words of a line, which shifts the links of `alignment`.

    Programs that align, and the files that they read, separate words by ASCII whitespace.
    """
    for number, line in enumerate(read_lines(original), start=1):
        counts = len(line.encode().split()), len(normalize_line(line).split())
        if counts[0] != counts[1]:
            raise UserError(
                f"{original}:{number}: has {counts[0]} words, but {counts[1]} after control characters are removed and "
                f"special spaces replaced, so links of {alignment} would be shifted; replace these characters"
            )


def check_line_counts(names: PathPair, counts: Sequence[int]) -> None:
    """Raise `UserError` if a side of a bitext, with these names, is empty or the sides differ in their line counts."""
    for name, count in zip(names, counts, strict=True):
        if count == 0:
            raise UserError(f"{name}: empty file; expected one sentence per line")
    if counts[0] != counts[1]:
        found = f"{names[0]} has {counts[0]} lines, {names[1]} has {counts[1]}"
        raise UserError(f"{found}; expected a sentence and its translation on lines of the same number")


def check_lines(text: Path, original: Path, is_held_out: bool, separator: str | None = None) -> None:
    """Check every line of a text that relumt has normalized; `original` is the user's file, for messages.

    Raises:
        UserError: a line has a word that is reserved by fairseq, which may be what BPE leaves of a longer word, or
            contains the document separator, which joining subwords could attach to other words, or a line of valid or
            test is empty.
    """
    for number, line in enumerate(read_clean_lines(text), start=1):
        where = f"{original}:{number}" if is_held_out else f"{original}: sentence {number} after cleaning"
        if is_held_out and not line:
            raise UserError(f"{where}: empty line; valid and test need a sentence on every line")
        if found := RESERVED_WORD.search(line):
            raise UserError(f"{where}: {found[1]}, a word or what BPE leaves of one, is reserved by fairseq; remove it")
        if separator and separator in line:
            raise UserError(f"{where}: the text contains {separator}; choose another --document-separator")


def check_not_in_subwords(text: Path, original: Path) -> None:
    """Raise `UserError` if many lines have the markers of subword-nmt or sentencepiece."""
    has_marker = ["@@ " in line or line.startswith("▁") for line in read_clean_lines(text)]
    if sum(has_marker) > MAX_SHARE_IN_SUBWORDS * len(has_marker):
        share = f"{sum(has_marker)} of {len(has_marker)} lines"
        raise UserError(f"{original}: expected words, but {share} have subwords (@@ or ▁); give the text before BPE")


def remove_markup(kind: str, texts: PathPair, outputs: PathPair, originals: PathPair) -> list[int]:
    """Write both sides of a text without their markup, which is in lines of its own, the same on both sides.

    Args:
        kind: a key of MARKUPS.
        texts: the two sides, normalized.
        outputs: files for the sentences.
        originals: the user's files, for error messages.

    Returns:
        The number of sentences of each document that has any.

    Raises:
        UserError: markup differs between the sides, or a sentence comes before the first document.
    """
    markup, document_start = MARKUPS[kind]
    lengths: list[int] = []
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        pairs = zip_longest(*map(read_clean_lines, texts), fillvalue="")
        for number, (source, target) in enumerate(pairs, start=1):
            kinds = [(bool(markup.fullmatch(line)), bool(document_start.match(line))) for line in (source, target)]
            if kinds[0] != kinds[1]:
                raise UserError(f"{originals[0]}:{number}: document markup on one side only; check {originals[1]}")
            if kinds[0][1]:
                lengths.append(0)
            elif not kinds[0][0]:
                if not lengths:
                    raise UserError(f"{originals[0]}:{number}: no document begins before; is it --documents {kind}?")
                lengths[-1] += 1
                source_output.write(source + "\n")
                target_output.write(target + "\n")
    return [length for length in lengths if length]


def reason_to_drop(source: list[str], target: list[str], max_length: int, max_ratio: float) -> str | None:
    """Return why a training pair (given as words) should be dropped, or None to keep it."""
    lengths = len(source), len(target)
    if min(lengths) == 0:
        return "empty"
    if not RESERVED_WORDS.isdisjoint(source) or not RESERVED_WORDS.isdisjoint(target):
        return "reserved word"
    if max(lengths) > max_length or len(max(*source, *target, key=len)) > MAX_WORD_LENGTH:
        return "too long"
    return "length ratio" if max(lengths) > max_ratio * min(lengths) else None


def clean_pairs(
    inputs: PathPair, outputs: PathPair, max_length: int, max_ratio: float
) -> tuple[list[bool], Counter[str]]:
    """Write the pairs of `inputs` that are fit for training to `outputs`; lengths are in words.

    Returns:
        For each pair whether it was kept, and the number of dropped pairs per reason.

    Raises:
        UserError: no pair is left.
    """
    kept: list[bool] = []
    dropped: Counter[str] = Counter()
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        for source, target in zip(*map(read_clean_lines, inputs), strict=True):
            reason = reason_to_drop(source.split(), target.split(), max_length, max_ratio)
            kept.append(reason is None)
            if reason:
                dropped[reason] += 1
                continue
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    if not any(kept):
        raise UserError(f"cleaning drops every training pair ({reasons}); raise --max-length or --max-ratio")
    print_status(f"dropped {dropped.total()} of {len(kept)} training pairs{reasons and ': '}{reasons}")
    return kept, dropped


def text_names(languages: Sequence[str], splits: Sequence[str] = SPLITS) -> list[str]:
    """Return the names of both texts of each split."""
    return [f"{split}.{language}" for split, language in product(splits, languages)]
