"""Printing a table in Markdown, LaTeX or as comma-separated values."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tabulate import tabulate

THOUSANDS_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

BRACKET_AT_START = re.compile(r"^(\s*)\[", re.MULTILINE)
"""A bracket that starts a row, which LaTeX would read as an option of the preceding `\\\\`."""

LATEX_SYMBOLS = {"γ": r"$\gamma$", "λ₁": r"$\lambda_1$", "λ₂": r"$\lambda_2$", "Δ": r"$\Delta$"}
"""Symbols that pdfLaTeX does not know."""


@dataclass(frozen=True)
class RenderedTable:
    """A table that is ready to be printed.

    Attributes:
        caption: what it shows, on one line.
        header: titles of the columns.
        rows: cells; the first column is left-aligned, the others right-aligned.
        notes: lines below the table.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = field(default_factory=list)


def to_markdown(table: RenderedTable) -> str:
    """Return the table in Markdown."""

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(map(str, cells))} |"

    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    lines = [f"**{table.caption}**", "", line(table.header), line(rule), *map(line, table.rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)])


def to_latex(table: RenderedTable) -> str:
    """Return a tabular for the package booktabs, with caption and notes as comments."""
    align = ["left"] + ["right"] * (len(table.header) - 1)
    body = tabulate(table.rows, table.header, tablefmt="latex_booktabs", disable_numparse=True, colalign=align)
    for symbol, command in LATEX_SYMBOLS.items():
        body = body.replace(symbol, command)
    body = BRACKET_AT_START.sub(r"\1{[}", body)
    return "\n".join([f"% {table.caption}", body, *(f"% {note}" for note in table.notes)])


def to_csv(table: RenderedTable) -> str:
    """Return comma-separated values, numbers without thousands separators; caption and notes are lines with #."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([THOUSANDS_SEPARATOR.sub("", str(cell)) for cell in row] for row in table.rows)
    return "\n".join([f"# {table.caption}", text.getvalue().rstrip("\n"), *(f"# {note}" for note in table.notes)])


FORMATS: dict[str, Callable[[RenderedTable], str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}
"""Name on the command line -> function that prints a table in that format."""
