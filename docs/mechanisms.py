"""Writes docs/mechanisms.md from the registry, the docstrings, the papers' values and our results: `make docs`."""

import inspect
import re
from dataclasses import Field
from itertools import groupby
from pathlib import Path
from typing import Literal, get_args, get_origin

from relumt.attention import MECHANISMS
from relumt.attention.registry import MechanismSpec
from relumt.papers import papers, printed_values
from relumt.variant_spec import flag_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "mechanisms.md"
RESULTS = ROOT / "docs" / "results" / "attention_on_multi30k.md"
"""The page whose first table has a row for each mechanism that was trained."""

TRIED = {"inhibitor": "results/inhibitor_init.md"}
"""Module → page on what was tried for its initialization."""

INTRODUCTION = """\
# The mechanisms

`make docs` generates this page from the docstrings, the registry, the papers' values and
[our results](results/attention_on_multi30k.md); a test checks that it is up to date. Shapes: B batch, H heads,
T queries, S keys, D head size, E = H·D.

`--attention NAME` selects a mechanism for all three sites; `--attention-encoder`, `--attention-decoder` and
`--attention-cross` select one for a single site. They work in every fairseq architecture of relumt. Without fairseq:

```python
import torch
from relumt.attention import MECHANISMS, AttentionMask

q, k, v = (torch.randn(2, 8, 10, 64) for _ in range(3))  # [B, H, T, D]
real = torch.tensor([[True] * 10, [True] * 7 + [False] * 3])  # False for padding
attention = MECHANISMS["rela_g"](num_heads=8, head_dim=64)
heads = attention(q, k, v, AttentionMask(key_mask=real, is_causal=True)).output  # [B, H, T, D]
output = attention.postprocess_heads(heads.permute(2, 0, 1, 3).flatten(2))  # [T, B, E], for the output projection
```

The README has a complete layer, with projections, their initialization (`init_projections`) and half precision
(`cast_saturating`).
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(RESULTS.read_text(encoding="utf-8")), encoding="utf-8")


def page(results: str) -> str:
    """The page, given the text of the page with our results."""
    measured = table(results)
    parts = [INTRODUCTION, sources()]
    for module, rows in groupby(MECHANISMS.items(), key=lambda item: inspect.getmodule(item[1].factory)):
        file = module.__name__.rpartition(".")[2]
        title, _, body = module.__doc__.partition("\n")
        parts.append(
            f"## {title.partition('. Shapes')[0].rstrip('.')}\n\n`relumt/attention/{file}.py`\n\n{prose(body)}"
        )
        parts += [mechanism(name, row, measured.get(name, {})) for name, row in rows]
        if file in TRIED:
            parts.append(f"What was tried for the initialization: [{TRIED[file]}]({TRIED[file]}).")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def sources() -> str:
    """What [RF], [RL] and [IN] stand for."""
    return "".join(f"- [{name}] {title}\n" for name, title in papers()["about"]["sources"].items())


def prose(docstring: str) -> str:
    """A module's docstring without what the page's introduction says, as Markdown."""
    return re.sub(r" *Shapes:[^.\n]*\.", "", inspect.cleandoc(docstring)).rstrip() + "\n"


def mechanism(name: str, row: MechanismSpec, ours: dict[str, str]) -> str:
    """The part on one mechanism."""
    summary = inspect.getdoc(row.factory).partition("\n\nA")[0].replace("\n", " ")
    lines = [f"### `{name}`\n", f"{summary}\n"]
    lines += [f"- `{flag_name(attribute)}`: {described(option)}" for attribute, option in row.flags()]
    for paper, where, which in row.paper_results:
        values = ", ".join(
            f"{column} {value}" for column, value in printed_values(paper, where, which).items() if value is not None
        )
        lines.append(f"- [{paper}] {where.replace('table', 'Table ')}, {which}: {values or 'did not converge'}")
    if ours:
        values = "; ".join(f"{name} {value}" for name, value in ours.items() if value)
        lines.append(f"- Ours, [multi30k_de_en_small](results/{RESULTS.name}): {values}")
    return "\n".join(lines)


def described(option: Field) -> str:
    """An option's help, the values it may have if they are few, and its default."""
    values = f"one of {', '.join(get_args(option.type))}; " if get_origin(option.type) is Literal else ""
    return f"{option.metadata['help']} ({values}default: {option.default})"


def table(markdown: str) -> dict[str, dict[str, str]]:
    """The first table of `markdown`: first cell of a row → the others by their column."""
    found = re.search(r"(?:^\|.*\n)+", markdown, flags=re.MULTILINE)
    if not found:
        return {}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.group().splitlines()]
    header, _, *body = rows
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}


if __name__ == "__main__":
    main()
