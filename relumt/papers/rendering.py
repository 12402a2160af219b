"""Printing a table in Markdown, LaTeX or as comma-separated values."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from tabulate import tabulate

DIVERGED = "-"
"""Cell of a run that diverged, as in the papers."""

THOUSANDS_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

SPECIAL_AT_START = re.compile(r"^(\s*)([\[*])", re.MULTILINE)
"""A bracket or star that starts a row, which LaTeX would read as an option of the preceding `\\\\`."""

LATEX_SYMBOLS = {
    "α": r"$\alpha$",
    "γ": r"$\gamma$",
    "λ₁": r"$\lambda_1$",
    "λ₂": r"$\lambda_2$",
    "τ": r"$\tau$",
    "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$",
}
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
        escaped = (str(cell).replace("|", r"\|") for cell in cells)
        return f"| {' | '.join(escaped)} |"

    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    lines = [f"**{table.caption}**", "", line(table.header), line(rule), *map(line, table.rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)])


def to_latex(table: RenderedTable) -> str:
    """Return a tabular for the package booktabs, with caption and notes as comments."""
    align = ["left"] + ["right"] * (len(table.header) - 1)
    body = tabulate(table.rows, table.header, tablefmt="latex_booktabs", disable_numparse=True, colalign=align)
    for symbol, command in LATEX_SYMBOLS.items():
        body = body.replace(symbol, command)
    body = SPECIAL_AT_START.sub(r"\1{\2}", body)
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


def format_p_value(p: float | None) -> str:
    """Return a p-value with three decimals, "<0.001" if all of them would be 0; "" for None."""
    if p is None:
        return ""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def format_average(values: Sequence[float], format_spec: str) -> str:
    """Format the mean as in "31.00 ± 1.41", with the standard deviation if there are several values; "" for none."""
    spread = f" ± {stdev(values):{format_spec}}" if len(values) > 1 else ""
    return f"{mean(values):{format_spec}}{spread}" if values else ""
