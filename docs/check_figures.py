"""Check that each figure quoted in the README and on the pages of answers occurs in the results: `make lint`.

A figure is a percentage or a number with a decimal point or a thousands separator, but not in code, in a link target,
in a reference ("§5.2"), in a version ("2.6.0") or in a name ("1.5-entmax"). Two rules:
- In a table of claims, the columns "claim" and "paper" quote relumt/papers.json: a figure occurs under the tables and
  figures that the claim names, or anywhere under the paper if it names none.
- Every other figure occurs, digit by digit, on a page of docs/results/ (or in its section) that is linked from the same
  paragraph, list item or table row; if none is linked there, from a paragraph under the same heading. If table rows
  there begin with the same cell as the quoting table row, it occurs in one of these. A value with its standard
  deviation ("40.75 ± 0.24") and an interval in parentheses occur as a whole.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from relumt.printed_results import papers

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
ANSWERS = ("results", "relu-or-softmax", "reluformer", "rela", "inhibitor", "activations")
QUOTING = ("README.md", *(f"docs/{name}.md" for name in ANSWERS))
NUMBER = re.compile(r"(?<![\w.,:§])\d+(?:,\d{3})*(?:\.\d+)?%?(?!\d|[.,]\d|-[a-z])")
SPREAD = re.compile(r"[\d.]+ ± [\d.]*\d|(?<=\()−?[\d.]+(?: to |–)−?[\d.]+(?=\))")
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
CODE = re.compile(r"^```.*?^```|^(?: {4,}\S[^\n]*\n)+|`[^`]*`", flags=re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A paragraph, a list item or a table row: its lines, the number of the first, and what it stands under."""

    first_line: int
    lines: list[str]
    heading: int
    columns: list[str]  # names of the table's columns; empty outside tables


def main() -> int:
    """Print one line per figure that was not found; return 1 if there is one."""
    problems = [line for name in QUOTING for line in unfounded(name, (ROOT / name).read_text(encoding="utf-8"))]
    print("".join(f"{line}\n" for line in problems), end="")
    return int(bool(problems))


def unfounded(name: str, text: str) -> Iterator[str]:
    """Return a message for each figure of `text`, the page `name`, that its evidence does not have."""
    paper = re.match(r"# \[(\w+)\]", text)
    page = list(blocks(blank(CODE, text)))
    for block in page:
        paragraphs = [other for other in page if other.heading == block.heading and not other.columns]
        links = result_links(name, [block]) or result_links(name, paragraphs)
        pages = ", ".join(links) or "docs/results/, because no page there is linked"
        label = cells(block.lines[0])[0] if block.columns else ""
        evidence = frozenset().union(*(evidence_figures(link, label) for link in links))
        for number, line in enumerate(block.lines, block.first_line):
            quoted, measured = [], figures(line)
            if paper and block.columns[:2] == ["claim", "paper"]:
                claim, theirs, *ours = cells(line)
                printed = printed_numbers(paper.group(1), claim)
                quoted = [it for it in figures(f"{claim} {theirs}") if float(re.sub("[,%]", "", it)) not in printed]
                measured = figures(" ".join(ours))
            yield from (f"{name}:{number}: {it} is not in papers.json" for it in quoted)
            yield from (f"{name}:{number}: {it} is not in {pages}" for it in measured if it not in evidence)
        first = next((n for n, line in enumerate(block.lines, block.first_line) if line.strip()), block.first_line)
        wholes = spreads(" ".join(block.lines))
        yield from (f"{name}:{first}: {it} is not in {pages}" for it in wholes if it not in evidence)


def blocks(text: str) -> Iterator[Block]:
    """Split a Markdown page without code."""
    heading, block = 0, Block(1, [], 0, [])
    for number, line in enumerate(text.splitlines(), 1):
        is_row = line.lstrip().startswith("|")
        if is_row or block.columns or not line.strip() or re.match(r"#|\s*- ", line):
            yield block
            heading += line.startswith("#")
            block = Block(number, [], heading, (block.columns or cells(line)) if is_row else [])
        block.lines.append(line)
    yield block


def blank(pattern: re.Pattern[str], text: str) -> str:
    """Return `text` with spaces for each match, so that every other character stays in its line and column."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def cells(row: str) -> list[str]:
    """Return the cells of a table row."""
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def figures(text: str) -> list[str]:
    """Return the figures of `text`, without signs."""
    return [number for number in NUMBER.findall(blank(LINK, blank(CODE, text))) if re.search(r"[.,%]", number)]


def spreads(text: str) -> list[str]:
    """Return the values with a standard deviation and the intervals in parentheses, each as a whole."""
    return SPREAD.findall(re.sub(r"\s+", " ", text))


def printed_numbers(paper: str, claim: str) -> set[float]:
    """Return the numbers of papers.json under the tables and figures that `claim` names, or under the whole paper."""
    printed = papers().get(paper, {})  # [AF] prints no numbers that we have
    entries = printed | printed.get("figures", {})
    names = [f"{kind.lower()}{number}" for kind, number in re.findall(r"(Table|Figure) (\d+)", claim)]
    selected = [entries.get(name) for name in names] if names else entries
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(selected))}


def result_links(name: str, linking: list[Block]) -> list[str]:
    """Return the pages of docs/results/, with anchors, that blocks of the page `name` link to."""
    targets = (target for block in linking for line in block.lines for target in LINK.findall(line))
    paths = (((ROOT / name).parent / target).resolve() for target in targets)
    return [path.name for path in paths if path.parent == RESULTS]


@cache
def evidence_figures(link: str, label: str) -> frozenset[str]:
    """Return the figures of a linked section, of its table rows that begin with the cell `label` if there are any."""
    text = section(link)
    rows = [line for line in text.splitlines() if line.startswith("|") and cells(line)[0] == label]
    evidence = "\n".join(rows) if label and rows else text
    return frozenset(figures(evidence) + spreads(evidence))


@cache
def section(link: str) -> str:
    """Return the text of a page of docs/results/, or of the section that the link's anchor names."""
    page, _, anchor = link.partition("#")
    text = (RESULTS / page).read_text(encoding="utf-8")
    parts = re.split(r"^#+ (.*)\n", text, flags=re.MULTILINE)[1:]  # heading, text below it, next heading, …
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in parts[::2]]
    return dict(zip(anchors, parts[1::2], strict=True)).get(anchor, "") if anchor else text


if __name__ == "__main__":
    sys.exit(main())
