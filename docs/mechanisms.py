"""Write docs/mechanisms.md from the registry, the docstrings, the papers' values and our results: `make docs`."""

import inspect
import re
from dataclasses import Field
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args, get_origin

from relumt.attention import MECHANISMS, Mechanism, gate, qk_norm
from relumt.attention.inhibitor import InhibitorAttention
from relumt.attention.registry import MechanismSpec
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.sparse import Entmax15Attention, SparsemaxAttention
from relumt.attention.variant_spec import flag_name
from relumt.printed_results import papers, printed_values

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "mechanisms.md"
RESULTS = ROOT / "docs" / "results" / "attention_on_multi30k.md"
"""The page whose first table has a row for each mechanism that was trained."""

INTRODUCTION = """\
# The mechanisms

`make docs` generates this page from the docstrings, the registry, the papers' values and
[our results](results/attention_on_multi30k.md); a test checks that it is up to date. Shapes: B batch, H heads,
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

SUPPORT = """\
## What each supports

"Yes" means the same results as an ordinary call, for sentences of 6, 100 and 600 tokens and for null rows (`pytest
tests/attention/test_support.py`): compiled without graph breaks (`fullgraph=True`); exported once for any batch and
length, by `torch.export` or `torch.onnx.export`; under `vmap`, `grad` and `jvp`; and in half precision. Compiled,
exported and transformed calls use PyTorch operators; [fused kernels](kernels.md) serve ordinary calls only.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(RESULTS.read_text(encoding="utf-8")), encoding="utf-8")


def page(results: str) -> str:
    """Return the page, given the text of the page with our results."""
    measured = first_table(results)
    sources = "".join(f"- [{name}] {title}\n" for name, title in papers()["about"]["sources"].items())
    sections = [INTRODUCTION, sources, SUPPORT, support_table()]
    for module, entries in groupby(MECHANISMS.items(), key=lambda entry: inspect.getmodule(entry[1].factory)):
        sections.append(module_section(module))
        sections += [mechanism_section(name, spec, measured.get(name, {})) for name, spec in entries]
    sections += [module_section(gate), module_section(qk_norm)]
    return "\n".join(section.rstrip() + "\n" for section in sections)


def support_table() -> str:
    """Return a table of what each mechanism supports; tests/attention/test_support.py checks it, but for the GPU."""
    columns = ("`torch.compile`", "`torch.export`", "ONNX", "`torch.func`", "fp16", "bf16")
    rows = [f"| `{name}` |{' yes |' * len(columns)} {gpu_kernel(spec(1, 4))} |" for name, spec in MECHANISMS.items()]
    header = f"| mechanism | {' | '.join(columns)} | GPU kernel |"
    return "\n".join([header, f"|{' --- |' * (len(columns) + 2)}", *rows])


def gpu_kernel(mechanism: Mechanism) -> str:
    """Return whose kernel computes a mechanism on a GPU."""
    if mechanism.pointwise_activation or isinstance(mechanism, InhibitorAttention):
        return "ours"
    if isinstance(mechanism, SoftmaxAttention):
        return "PyTorch's"
    return "AdaSplash's" if isinstance(mechanism, SparsemaxAttention | Entmax15Attention) else "none"


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
        lines.append(f"- Ours, [multi30k_de_en_small](results/{RESULTS.name}): {values}")
    return "\n".join(lines)


def describe(option: Field) -> str:
    """Return an option's help, its choices if it has any, and its default."""
    choices = f"one of {', '.join(get_args(option.type))}; " if get_origin(option.type) is Literal else ""
    return f"{option.metadata['help']} ({choices}default: {option.default})"


def first_table(markdown: str) -> dict[str, dict[str, str]]:
    """Return the first table of `markdown`: the first cell of each row → its other cells by column."""
    found = re.search(r"(?:^\|.*\n)+", markdown, flags=re.MULTILINE)
    if not found:
        return {}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.group().splitlines()]
    header, _, *body = rows
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}


if __name__ == "__main__":
    main()
