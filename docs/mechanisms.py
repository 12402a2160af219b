"""Write docs/mechanisms.md from the registry, the docstrings, the papers' values and our results: `make docs`."""

import inspect
import re
from dataclasses import Field
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

from results import cell, load

from relumt.attention import MECHANISMS, gate, qk_norm
from relumt.attention.registry import MechanismSpec
from relumt.attention.variant_spec import flag_name
from relumt.printed_results import papers, printed_values

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "mechanisms.md"

INTRODUCTION = """\
# The mechanisms

`make docs` generates this page from the docstrings, the registry, the papers' values and
[our results](results/multi30k.md); a test checks that it is up to date. Shapes: B batch, H heads,
T queries, S keys, D head size, E = H·D.

`--attention NAME` selects a mechanism for all three sites (encoder, decoder and cross-attention);
`--attention-encoder`, `--attention-decoder` and `--attention-cross` select one for a single site. These flags work in
every fairseq architecture of relumt. To use a mechanism without fairseq:

```python
import torch
from relumt.attention import MECHANISMS, AttentionMask

q, k, v = (torch.randn(2, 8, 10, 64) for _ in range(3))  # [B, H, T, D]
real = torch.tensor([[True] * 10, [True] * 7 + [False] * 3])  # False for padding
attention = MECHANISMS["rela_g"](num_heads=8, head_dim=64)
heads = attention(q, k, v, AttentionMask(key_mask=real, is_causal=True)).output  # [B, H, T, D]
output = attention.postprocess_heads(heads.permute(2, 0, 1, 3).flatten(2))  # [T, B, E], for the output projection
```

`relumt.attention.MultiheadAttention` is a complete layer, with projections, their initialization
(`init_projections`) and half precision (`cast_saturating`).
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(load("results")["multi30k"]["tables"]["equal"]), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    """Return the page, given a table with our results, which has a row for each mechanism that was trained."""
    names = list(results["columns"])[1:]
    measured = {row: {name: cell(results, row, name) for name in names} for row in results["rows"]}
    sources = "".join(f"- [{name}] {title}\n" for name, title in papers()["about"]["sources"].items())
    sections = [INTRODUCTION, sources]
    for module, entries in groupby(MECHANISMS.items(), key=lambda entry: inspect.getmodule(entry[1].factory)):
        sections.append(module_section(module))
        sections += [mechanism_section(name, spec, measured.get(name, {})) for name, spec in entries]
    sections += [module_section(gate), module_section(qk_norm)]
    return "\n".join(section.rstrip() + "\n" for section in sections)


def module_section(module: ModuleType) -> str:
    """Return a module's docstring as a section, without the shapes, which the introduction explains."""
    docstring = re.sub(r" *Shapes:[^.\n]*\.", "", module.__doc__)
    title, _, body = docstring.partition("\n")
    path = Path(module.__file__).relative_to(ROOT)
    body = re.sub(r"docs/(\S+\.md)", r"[\1](\1)", body.strip("\n"))
    return f"## {title.rstrip('.')}\n\n`{path}`\n\n{body}"


def mechanism_section(name: str, spec: MechanismSpec, ours: dict[str, str]) -> str:
    """Return a mechanism's summary, options, results in the papers, and our results."""
    summary = " ".join(re.split(r"\n\n(?:Attributes|Args):", inspect.getdoc(spec.factory))[0].split())
    lines = [f"### `{name}`\n", f"{summary}\n"]
    lines += [f"- `{flag_name(attribute)}`: {describe(option)}" for attribute, option in spec.flags()]
    for paper, table, row in spec.paper_results:
        printed = printed_values(paper, table, row)
        values = ", ".join(f"{column} {value}" for column, value in printed.items() if value is not None)
        lines.append(f"- [{paper}] {table.replace('table', 'Table ')}, {row}: {values or 'did not converge'}")
    if ours:
        values = "; ".join(f"{column} {value}" for column, value in ours.items() if value)
        lines.append(f"- Ours, [multi30k_de_en_small](results/multi30k.md): {values}")
    return "\n".join(lines)


def describe(option: Field) -> str:
    """Return an option's help, its choices if it has any, and its default."""
    choices = f"one of {', '.join(get_args(option.type))}; " if get_origin(option.type) is Literal else ""
    return f"{option.metadata['help']} ({choices}default: {option.default})"


if __name__ == "__main__":
    main()
