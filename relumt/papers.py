"""What the papers print: `papers.json`, values as printed. [RF], [RL] and [IN] are named in its "about"."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def papers() -> dict[str, Any]:
    """The whole of it: paper → table → caption, columns and rows."""
    return json.loads(files("relumt").joinpath("papers.json").read_text(encoding="utf-8"))


def title(paper: str, item: str) -> str:
    """What a table or figure, "table1" for example, is called and shows, in one line."""
    of = papers()[paper]
    return f"[{paper}] {item[:-1].capitalize()} {item[-1]}: {(of | of['figures'])[item]['caption']}"


def printed(paper: str, table: str, row: str) -> dict[str, float | None]:
    """Column → the value that the paper prints in a row, None where it prints "-" or nothing.

    Raises:
        KeyError: no such paper, table or row.
    """
    found = papers()[paper][table]
    return dict(zip(found["columns"], found["rows"][row], strict=True))


def as_printed(paper: str, table: str, row: str, column: str) -> str:
    """A value with the digits of its column: 34.5 is 34.50 beside 34.56; empty for "-" or nothing.

    Raises:
        KeyError: no such paper, table, row or column.
    """
    value = printed(paper, table, row)[column]
    if value is None:
        return ""
    of_column = [found[column] for name in papers()[paper][table]["rows"] if (found := printed(paper, table, name))]
    digits = max(len(str(number).partition(".")[2]) for number in of_column if number is not None)
    return f"{value:.{digits}f}"
