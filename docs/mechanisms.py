"""Write docs/mechanisms.md from the registry, the docstrings and the papers' values: `make docs`."""

import inspect
import re
from collections import defaultdict
from dataclasses import Field
from itertools import groupby, takewhile
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args, get_origin

from relumt.attention import MECHANISMS, Mechanism, gate, qk_norm
from relumt.attention.inhibitor import InhibitorAttention
from relumt.attention.registry import MechanismSpec
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.sparse import Entmax15Attention, SparsemaxAttention
from relumt.attention.variant_spec import flag_name
from relumt.printed_results import printed_values

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "mechanisms.md"

INTRODUCTION = """\
# Mechanisms

`--attention NAME` selects a mechanism, `--attention-encoder`, `--attention-decoder` and `--attention-cross` one for a
single site; `--feedforward NAME` selects a [feed-forward layer](#feed-forward-layers). In Python, `MultiheadAttention`
and `attend` take [the same names](using.md#in-your-own-pytorch-code), or call the module:

```python
import torch
from relumt.attention import MECHANISMS, AttentionMask

q, k, v = (torch.randn(2, 8, 10, 64) for _ in range(3))  # [B, H, T, D]
real = torch.tensor([[True] * 10, [True] * 7 + [False] * 3])  # False for padding
attention = MECHANISMS["rela_g"](num_heads=8, head_dim=64)
heads = attention(q, k, v, AttentionMask(key_mask=real, is_causal=True)).output  # [B, H, T, D]
output = attention.postprocess_heads(heads.permute(2, 0, 1, 3).flatten(2))  # [T, B, E], for the output projection
```

Shapes: B batch, H heads, T queries, S keys, D head size, E = H·D. Lines with [RF], [RL] or [IN] are the papers'
numbers ([sources](index.md)); [ours](results/multi30k.md). `make docs` writes this page.
"""

FEEDFORWARDS = """\
## Feed-forward layers

`relumt/attention/feedforward.py`

Every variant is fc2(act(fc1(x))), a memory of h slots ([RF] §3). `--encoder-ffn-embed-dim` and
`--decoder-ffn-embed-dim` set h, `--feedforward-encoder` and `--feedforward-decoder` a variant for one side.
`configs/models.toml` has a model `ffn_NAME` of each.

| `--feedforward` | between fc1 and fc2 | options |
|---|---|---|
| `stock` (default) | fairseq's `--activation-fn` | |
| `relu`, `gelu`, `swish`, `mish` | the activation of that name in PyTorch | |
| `relu2` | ReLU(x)² (Primer) | |
| `softmax` | softmax(x/τ) ([RF] Eq. 2) | `--memory-temperature` (τ), `--no-memory-bias` |
| `softmax_ln` | the same; LayerNorm after fc2 ([RF] §3.2) | the same |
| `swiglu`, `geglu`, `reglu` | act(a) ⊙ b; fc1 returns both halves | `--gated-equal-parameters`: ⅔ of the width |
| `aptx1` | ((1 + tanh βx)·γx)², β = 1 and γ = 0.5 trained ([AF]) | |
| `relu_gt` | a·x² for x ≥ 0, 2.5·b·x for x < 0, a = 1 and b = 0.05 trained ([AF]) | |

### The source of aptx1 and relu_gt

[AF] is a blog post, ZDisket 2024, *Activation functions, part 2*, without formulas; these are those of the author's
code, `APTxS1` and, on the branch `isolate-preencoder`, `ReLUGT` in `model/subatts.py` of
https://github.com/ZDisket/FastSpeech2. `--weight-decay` also pulls the trained values toward 0.
"""

SUPPORT = """\
## What each supports

Every mechanism gives the same results as an ordinary call, for any length and for null rows, when it is compiled
(`fullgraph=True`), exported once for any batch and length (`torch.export`, `torch.onnx.export`), under `vmap`, `grad`
and `jvp`, and in half precision (`pytest tests/attention/test_support.py`). Exported and transformed calls use PyTorch
operators; [fused kernels](kernels.md) serve ordinary and compiled calls. On a GPU they are
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page."""
    sections = [INTRODUCTION, SUPPORT, gpu_kernels()]
    for module, entries in groupby(MECHANISMS.items(), key=lambda entry: inspect.getmodule(entry[1].factory)):
        sections.append(module_section(module))
        sections += [mechanism_section(name, spec) for name, spec in entries]
    sections += [module_section(gate), module_section(qk_norm), FEEDFORWARDS]
    return "\n".join(section.rstrip() + "\n" for section in sections)


def gpu_kernels() -> str:
    """Return a list of whose kernels compute which mechanisms on a GPU."""
    names = defaultdict(list)
    for name, spec in MECHANISMS.items():
        names[gpu_kernel(spec(1, 4))].append(f"`{name}`")
    return "\n".join(f"- {owner}: {', '.join(found)}" for owner, found in names.items())


def gpu_kernel(mechanism: Mechanism) -> str:
    """Return whose kernel computes a mechanism on a GPU."""
    if mechanism.pointwise_activation or isinstance(mechanism, InhibitorAttention):
        return "ours"
    if isinstance(mechanism, SoftmaxAttention) and mechanism.inherits_methods(SoftmaxAttention, "weights"):
        return "PyTorch's"
    return "AdaSplash's" if isinstance(mechanism, SparsemaxAttention | Entmax15Attention) else "PyTorch operators"


def module_section(module: ModuleType) -> str:
    """Return a module's docstring as a section, without the shapes, which the introduction explains."""
    docstring = re.sub(r" *Shapes:[^.\n]*\.", "", module.__doc__)
    title, _, body = docstring.partition("\n")
    path = Path(module.__file__).relative_to(ROOT)
    body = re.sub(r"docs/(\S+\.md)", r"[\1](\1)", body.strip("\n"))
    return f"## {title.rstrip('.')}\n\n`{path}`\n\n{body}"


def mechanism_section(name: str, spec: MechanismSpec) -> str:
    """Return a mechanism's summary, options and results in the papers."""
    summary = " ".join(re.split(r"\n\n(?:Attributes|Args):", inspect.getdoc(spec.factory))[0].split())
    lines = [f"### `{name}`\n", f"{summary}\n", *option_lines(spec)]
    for paper, table, row in spec.paper_results:
        printed = printed_values(paper, table, row)
        values = ", ".join(f"{column} {value}" for column, value in printed.items() if value is not None)
        lines.append(f"- [{paper}] {table.replace('table', 'Table ')}, {row}: {values or 'did not converge'}")
    return "\n".join(lines)


def option_lines(spec: MechanismSpec) -> list[str]:
    """Return a line for each option of a mechanism, and one line for those that an earlier mechanism has, too."""
    earlier = takewhile(lambda other: other is not spec, MECHANISMS.values())
    described = {attribute for other in earlier for attribute, _ in other.flags()}
    lines = [f"- `{flag_name(name)}`: {describe(option)}" for name, option in spec.flags() if name not in described]
    as_above = ", ".join(f"`{flag_name(name)}`" for name, _ in spec.flags() if name in described)
    return [*lines, *([f"- {as_above}: as above"] if as_above else [])]


def describe(option: Field) -> str:
    """Return an option's help, its choices if it has any, and its default."""
    choices = f"one of {', '.join(get_args(option.type))}; " if get_origin(option.type) is Literal else ""
    return f"{option.metadata['help']} ({choices}default: {option.default})"


if __name__ == "__main__":
    main()
