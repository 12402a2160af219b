"""A table as it is printed: in Markdown, LaTeX or as comma-separated values."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tabulate import tabulate

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

OPENING = re.compile(r"^(\s*)\[", re.MULTILINE)
"""A bracket that begins a row, which LaTeX would take for an option of the \\\\ before it."""

IN_LATEX = {"γ": r"$\gamma$", "λ₁": r"$\lambda_1$", "λ₂": r"$\lambda_2$", "Δ": r"$\Delta$"}
"""Signs that pdfLaTeX does not know."""


@dataclass(frozen=True)
class RenderedTable:
    """A table.

    Attributes:
        caption: what it shows, one line.
        head: of the columns.
        rows: cells as they are printed; the first column is left-aligned, the others to the right.
        notes: what stands below it, a line each.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = field(default_factory=list)


def markdown_row(cells: Iterable[object]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def markdown(sheet: RenderedTable) -> str:
    """The sheet in Markdown."""
    head = [markdown_row(sheet.head), markdown_row(["---"] + ["---:"] * (len(sheet.head) - 1))]
    lines = [f"**{sheet.caption}**", "", *head, *map(markdown_row, sheet.rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in sheet.notes)])


def latex(sheet: RenderedTable) -> str:
    """A tabular for the package booktabs; caption and notes are comments."""
    align = ["left"] + ["right"] * (len(sheet.head) - 1)
    body = tabulate(sheet.rows, sheet.head, tablefmt="latex_booktabs", disable_numparse=True, colalign=align)
    for sign, command in IN_LATEX.items():
        body = body.replace(sign, command)
    body = OPENING.sub(r"\1{[}", body)
    return "\n".join([f"% {sheet.caption}", body, *(f"% {note}" for note in sheet.notes)])


def comma_separated(sheet: RenderedTable) -> str:
    """Comma-separated values, numbers without a mark of thousands; caption and notes are lines that begin with #."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.head)
    writer.writerows([THOUSANDS.sub("", str(cell)) for cell in row] for row in sheet.rows)
    return "\n".join([f"# {sheet.caption}", text.getvalue().rstrip("\n"), *(f"# {note}" for note in sheet.notes)])


FORMATS: dict[str, Callable[[RenderedTable], str]] = {"markdown": markdown, "latex": latex, "csv": comma_separated}
"""Name → how it is printed."""
