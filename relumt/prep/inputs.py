"""The input files of `relumt prepare`: texts, and files beside them that describe documents, subsets and alignments."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.data.document_lengths import documents_path
from relumt.errors import UserError
from relumt.files import optional_file, require_simple_name
from relumt.prep.bitext import PathPair, check_no_empty_line, side_paths
from relumt.prep.options import HELD_OUT, SPLITS, Options
from relumt.prep.subsets import read_subsets, subsets_path
from relumt.text_files import find_text_file, normalize_file, read_clean_lines, write_lines

if TYPE_CHECKING:
    from relumt.metrics.alignment import GoldAlignment

Inputs = dict[str, Path]
"""Input files by name. {split}.{language} is always there, the others only if the user has them:

{split}.docs            lengths of the documents
valid|test.raw.{language}   of a tokenized text, the text before tokenization
valid|test.subsets.json     subsets of a test set
valid|test.align        gold word alignments
"""


def find_inputs(prefixes: dict[str, str], options: Options) -> Inputs:
    """Find the input files that start with `prefixes` (by split).

    Raises:
        UserError: a text is missing, something is beside it that cannot be used, or gold alignments are ambiguous or
            would not fit the tokenized text.
    """
    for prefix in prefixes.values():
        require_simple_name(prefix)
    languages = options.languages
    inputs = {f"{split}.{lang}": find_text_file(prefixes[split], lang) for split in SPLITS for lang in languages}
    optional = {f"{split}.docs": documents_path(prefixes[split]) for split in SPLITS}
    optional |= {f"{split}.subsets.json": subsets_path(prefixes[split]) for split in HELD_OUT}
    if options.tokenized_input:
        optional |= find_raw_texts(prefixes, languages)
    inputs |= {name: path for name, path in optional.items() if find_side_file(path)}
    for split in SPLITS if options.documents else ():
        if path := inputs.get(f"{split}.docs"):
            raise UserError(f"{path}: documents are given here and by --documents {options.documents}; remove one")
    for split in HELD_OUT:
        if (path := find_alignments(prefixes[split], languages)) is None:
            continue
        if options.tokenize:
            raise UserError(
                f"{path} numbers the words of the text as it is, but --tokenize would split them differently; "
                "tokenize the texts first and give --tokenized-input"
            )
        inputs[f"{split}.align"] = path
    return inputs


def find_side_file(path: Path) -> Path | None:
    """Return `path` if a file is there, and None if nothing is; raise UserError if it is there compressed."""
    compressed = path.with_name(f"{path.name}.gz")
    if compressed.exists():
        raise UserError(f"{compressed}: only P.SRC and P.TGT may be compressed; decompress or rename it")
    return optional_file(path)


def find_raw_texts(prefixes: dict[str, str], languages: tuple[str, str]) -> dict[str, Path]:
    """Return the texts before tokenization of valid and test, PREFIX.raw.LANGUAGE; none if no file is there.

    Raises:
        UserError: some are missing. Scores would be computed on raw text for one split and not for the other.
    """
    raw = {f"{split}.raw.{lang}": Path(f"{prefixes[split]}.raw.{lang}") for split in HELD_OUT for lang in languages}
    missing = [path for path in raw.values() if not find_side_file(path)]
    if len(missing) == len(raw):
        return {}
    if missing:
        found = next(path for path in raw.values() if path not in missing)
        raise UserError(
            f"{missing[0]}: no such file, but {found} is there; valid and test need the text before tokenization in "
            "both languages, so add it, or rename the others"
        )
    return raw


def find_alignments(prefix: str, languages: tuple[str, str]) -> Path | None:
    """Return the file with gold alignments of the text `prefix`, or None.

    P.align and P.SRC-TGT.align give the source word first. P.TGT-SRC.align gives the target word first, because it was
    made for the opposite translation direction.

    Raises:
        UserError: there is more than one such file.
    """
    source, target = languages
    names = (f"{prefix}.align", f"{prefix}.{source}-{target}.align", f"{prefix}.{target}-{source}.align")
    found = [path for path in map(Path, names) if find_side_file(path)]
    if len(found) > 1:
        raise UserError(f"{found[0]} and {found[1]} are both alignments of {prefix}; remove one")
    return found[0] if found else None


def copy_side_files(
    inputs: Inputs, texts: Path, languages: tuple[str, str], num_lines: dict[str, int], folder: Path
) -> None:
    """Copy what evaluation needs besides the texts to `folder`.

    Raises:
        UserError: a file does not fit its text in the folder `texts`, of `num_lines[split]` lines.
    """
    for name, path in inputs.items():
        split, _, kind = name.partition(".")
        expected = num_lines[split]
        if kind.startswith("raw."):
            if (count := normalize_file(path, folder / name, lambda _: None)) != expected:
                raise UserError(f"{path} has {count} lines, but the tokenized text has {expected}; fix it")
            check_no_empty_line(folder / name, path)
        elif kind == "subsets.json":
            read_subsets(path, expected)
            shutil.copyfile(path, folder / name)
        elif kind == "align":
            alignments = read_source_first(path, languages, expected)
            check_links(path, alignments, side_paths(texts, split, languages))
            write_lines(folder / name, map(format_alignment, alignments))


def read_source_first(path: Path, languages: tuple[str, str], num_pairs: int) -> list["GoldAlignment"]:
    """Return the gold alignments of a text, source word first; raise `UserError` if they are not `num_pairs`."""
    # Not above: torch takes seconds, also in every worker process.
    from relumt.metrics.alignment import is_target_first, read_alignments

    alignments = read_alignments(path, 0, num_pairs)
    if len(alignments) != num_pairs:
        raise UserError(f"{path} has {len(alignments)} alignments, but the text has {num_pairs} pairs; fix it")
    return [gold.swap_sides() for gold in alignments] if is_target_first(path, *languages) else alignments


def check_links(path: Path, alignments: Sequence["GoldAlignment"], texts: PathPair) -> None:
    """Raise `UserError` at the first link to a word that its sentence does not have; words are counted from 0."""
    for number, (gold, *sentences) in enumerate(zip(alignments, *map(read_clean_lines, texts), strict=True), start=1):
        lengths = [len(sentence.split()) for sentence in sentences]
        for source, target in sorted(gold.possible):
            if source >= lengths[0] or target >= lengths[1]:
                seems_one_based = all(min(link) > 0 for gold in alignments for link in gold.possible)
                advice = (
                    "the file seems to count from 1, so subtract 1 from every number"
                    if seems_one_based
                    else "check that they are alignments of this text"
                )
                raise UserError(
                    f"{path}: sentence pair {number} links source word {source} and target word {target}, counted "
                    f"from 0, but it has {lengths[0]} and {lengths[1]} words; {advice}"
                )


def format_alignment(gold: "GoldAlignment") -> str:
    """Format the links of one pair, source word first: 1-2 for a sure link, 1p2 for a possible one."""
    return " ".join(f"{s}{'-' if (s, t) in gold.sure else 'p'}{t}" for s, t in sorted(gold.possible))
