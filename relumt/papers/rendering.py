"""Printing a table in Markdown, LaTeX or as comma-separated values."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from tabulate import tabulate

from relumt.errors import printable

DIVERGED = "-"
"""Cell of a run that diverged, as in the papers."""

THOUSANDS_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

FORMULA_STARTS = tuple("=+-@＝＋－＠")
"""Characters at the start of a cell that make spreadsheets compute it: a formula can also run commands."""

NUMBER = re.compile(r"[+-]?(\d[\d,.]*(e[+-]?\d+)?( ± [\d,.]+| \([+-]?[\d,.]+ to [+-]?[\d,.]+\))?)?")
"""How tables print numbers, with spread or interval; "-" stands for a run that diverged."""

FORMULA_IN_COMMENT = re.compile(rf"(?<=[,;])([\s\"]*)(?=[{re.escape(''.join(FORMULA_STARTS))}])")
"""The place in a comment where a spreadsheet would split it and find a formula."""

MARKDOWN_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])|(?<=\])\(")
"""The start of an HTML element, or the part of a link that follows the brackets."""

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

    def on_single_lines(self) -> "RenderedTable":
        """Return a copy in which no text has line breaks or other control characters.

        Names come from folders and files, and a line break would end a row or a comment.
        """
        return RenderedTable(
            printable(self.caption),
            [printable(title) for title in self.header],
            [[printable(str(cell)) for cell in row] for row in self.rows],
            [printable(note) for note in self.notes],
        )


def to_markdown(table: RenderedTable) -> str:
    """Return the table in Markdown."""
    table = table.on_single_lines()

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(escape_markdown_cell(str(cell)) for cell in cells)} |"

    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    lines = [f"**{escape_markdown(table.caption)}**", "", line(table.header), line(rule), *map(line, table.rows)]
    return "\n".join([*lines, "", *(f"- {escape_markdown(note)}" for note in table.notes)])


def escape_markdown(text: str) -> str:
    """Return text that contains no HTML elements and no links."""
    return MARKDOWN_MARKUP.sub(lambda match: "&lt;" if match[0] == "<" else r"\(", text)


def escape_markdown_cell(text: str) -> str:
    """Return text that contains nothing that ends a cell of a table, and no markup."""
    return escape_markdown(text.replace("\\", r"\\").replace("|", r"\|"))


def to_latex(table: RenderedTable) -> str:
    """Return a tabular for the package booktabs, with caption and notes as comments."""
    table = table.on_single_lines()
    align = ["left"] + ["right"] * (len(table.header) - 1)
    body = tabulate(table.rows, table.header, tablefmt="latex_booktabs", disable_numparse=True, colalign=align)
    for symbol, command in LATEX_SYMBOLS.items():
        body = body.replace(symbol, command)
    body = SPECIAL_AT_START.sub(r"\1{\2}", body)
    return "\n".join([f"% {table.caption}", body, *(f"% {note}" for note in table.notes)])


def to_csv(table: RenderedTable) -> str:
    """Return comma-separated values, numbers without thousands separators; caption and notes are lines with #."""
    table = table.on_single_lines()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(escape_formula, table.header))
    writer.writerows([escape_formula(THOUSANDS_SEPARATOR.sub("", str(cell))) for cell in row] for row in table.rows)
    comments = [FORMULA_IN_COMMENT.sub(r"\1'", comment) for comment in (table.caption, *table.notes)]
    caption, *notes = (f"# {comment}" for comment in comments)
    return "\n".join([caption, text.getvalue().rstrip("\n"), *notes])


def escape_formula(cell: str) -> str:
    """Return the text of a cell, after an apostrophe if a spreadsheet would take it for a formula."""
    is_formula = cell.lstrip().startswith(FORMULA_STARTS) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


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
