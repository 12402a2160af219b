"""The results that the papers print, from `papers.json`; its key "about" names the papers [RF], [RL] and [IN]."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def papers() -> dict[str, Any]:
    """Return the whole file: paper -> table -> caption, columns and rows."""
    return json.loads(files("relumt").joinpath("papers.json").read_text(encoding="utf-8"))


def title(paper: str, item: str) -> str:
    """Return the number and caption of a table or figure, for example of "table1", on one line.

    Raises:
        KeyError: no such paper, table or figure.
    """
    caption = (papers()[paper] | papers()[paper].get("figures", {}))[item]["caption"]
    kind = item.rstrip("0123456789")
    return f"[{paper}] {kind.capitalize()} {item.removeprefix(kind)}: {caption}"


def printed_values(paper: str, table: str, row: str) -> dict[str, float | None]:
    """Return the values of a row by column, None where the paper prints "-" or nothing.

    Raises:
        KeyError: no such paper, table or row.
    """
    content = papers()[paper][table]
    return dict(zip(content["columns"], content["rows"][row], strict=True))


def format_printed(paper: str, table: str, row: str, column: str) -> str:
    """Return a value with as many digits as its column has: 34.5 is "34.50" beside 34.56; "" for "-" or nothing.

    Raises:
        KeyError: no such paper, table, row or column.
    """
    value = printed_values(paper, table, row)[column]
    if value is None:
        return ""
    values = [printed_values(paper, table, name)[column] for name in papers()[paper][table]["rows"]]
    digits = max(len(str(other).partition(".")[2]) for other in values if other is not None)
    return f"{value:.{digits}f}"
