"""Checks and cleaning of a bitext: equal line counts, no empty lines, lengths and ratio of train's pairs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.lines import open_text, read_clean

# As words these would become the symbols themselves: an end or a padding in the middle of a sentence.
RESERVED_WORDS = frozenset({"<s>", "</s>", "<pad>"})


def check_line_counts(source: Path, source_lines: int, target: Path, target_lines: int) -> None:
    """Raise `UserError` if a file of the pair is empty or the two have not as many lines."""
    for path, lines in ((source, source_lines), (target, target_lines)):
        if lines == 0:
            raise UserError(f"{path}: empty file; give a text with one sentence a line")
    if source_lines != target_lines:
        raise UserError(
            f"{source} has {source_lines} lines but {target} has {target_lines}; "
            "line i of one must translate line i of the other"
        )


def check_no_empty_line(text: Path, original: Path) -> None:
    """Raise `UserError` at the first empty line of the normalised `text`; `original` is the user's file."""
    for number, line in enumerate(read_clean(text), start=1):
        if not line:
            raise UserError(f"{original}:{number}: empty line; valid and test need a sentence on every line")


def check_no_reserved_word(text: Path, original: Path) -> None:
    """Raise `UserError` at the first line with a word that fairseq keeps for itself."""
    for number, line in enumerate(read_clean(text), start=1):
        for word in RESERVED_WORDS.intersection(line.split(" ")):
            raise UserError(f"{original}:{number}: the word {word} is reserved by fairseq; take it out")


def objection(source: list[str], target: list[str], max_length: int, max_ratio: float) -> str | None:
    """Return why a pair of train (its words) is of no use, or None if it is."""
    lengths = len(source), len(target)
    if min(lengths) == 0:
        return "empty"
    if not RESERVED_WORDS.isdisjoint(source) or not RESERVED_WORDS.isdisjoint(target):
        return "reserved word"
    if max(lengths) > max_length:
        return "too long"
    if max(lengths) > max_ratio * min(lengths):
        return "length ratio"
    return None


def clean_pairs(
    inputs: tuple[Path, Path], outputs: tuple[Path, Path], max_length: int, max_ratio: float
) -> tuple[list[bool], Counter[str]]:
    """Write the useful pairs of `inputs` to `outputs`; lengths are in words.

    Returns for each pair whether it was kept, and how many were dropped for each objection. Raises
    `UserError` if none is left.
    """
    kept: list[bool] = []
    dropped: Counter[str] = Counter()
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        for source, target in _pairs(inputs):
            reason = objection(source.split(), target.split(), max_length, max_ratio)
            kept.append(reason is None)
            if reason is not None:
                dropped[reason] += 1
                continue
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    if not any(kept):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise UserError(f"cleaning leaves nothing of train ({reasons}); raise --max-length or --max-ratio")
    return kept, dropped


def _pairs(paths: tuple[Path, Path]) -> Iterator[tuple[str, str]]:
    return zip(read_clean(paths[0]), read_clean(paths[1]), strict=True)
