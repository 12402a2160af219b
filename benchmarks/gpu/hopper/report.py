"""The table of what was measured."""

from dataclasses import dataclass
from typing import Any

from jobs import DROPOUT, TIMED_SHAPES

LENGTHS = [n for _, _, n, _ in TIMED_SHAPES]
B, H, LONGEST, D = TIMED_SHAPES[-1]
PRODUCTS = {"forward": 2, "dq": 2, "dkdv": 4, "backward": 5}
"""Products of matrices by the last word of a kernel's name; each takes 2 B H n² D operations."""
EXPECTED = {"forward": 0.215, "dq": 0.23, "dkdv": 0.46, "cuDNN forward": 0.306, "cuDNN backward": 0.848}
"""Kernel → ms at n = 2048: predicted from instruction counts; cuDNN's were measured on an H100."""
HEADER = [
    *("kernel", "config", "status", "worst relative error"),
    *(f"ms, n = {n}" for n in LENGTHS),
    *("TFLOP/s", "time / cuDNN's", "expected ms"),
]
NOTES = f"""
Times are medians for batch {B}, {H} heads, D = {D}, bfloat16. The last three columns are for n = {LONGEST}. "time /
cuDNN's" compares with cuDNN's first time of the same pass with the same dropout; dq and dkdv are parts of a backward
pass. Expected times are predictions from instruction counts, and for cuDNN earlier measurements on an H100.
"""


@dataclass
class Row:
    """A line of the table; `ms` is n → time."""

    kernel: str
    config: str
    status: str
    errors: list[float]
    ms: dict[int, float]


def make_report(versions: dict[str, Any], outcomes: list[dict[str, Any]]) -> str:
    """Return the table in Markdown.

    Args:
        versions: name → the GPU or a version.
        outcomes: kernel, config, status and results of each job.
    """
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    times = {(row.kernel, row.config): row.ms for row in rows}
    parts = [times.get(part, {}) for part in (("dq", "2wg"), ("dkdv", "2wg, writes bits"))]
    if all(LONGEST in part for part in parts):
        total = {n: sum(part[n] for part in parts) for n in LENGTHS}
        rows.append(Row("backward", "dq 2wg + dkdv 2wg, writes bits", "ok", [], total))
    lines = [HEADER, ["---"] * len(HEADER), *(cells(row, times) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{', '.join(f'{name}: {value}' for name, value in versions.items())}\n\n{table}\n{NOTES}"


def rows_of(outcome: dict[str, Any]) -> list[Row]:
    """Return the row of a kernel, or one for each baseline that a job timed."""
    row = Row(outcome["kernel"], outcome["config"], outcome["status"], [], {})
    baselines: dict[tuple[str, str], Row] = {}
    for result in outcome["results"]:
        if "kernel" in result:
            name = result["kernel"], result["config"]
            target = baselines.setdefault(name, Row(*name, "ok", [], {}))
            target.status = result.get("failed", "ok")
        else:
            target = row
        target.errors += result.get("errors", {}).values()
        if "ms" in result:
            target.ms[result["n"]] = result["ms"]
    return [*baselines.values(), *([row] if not baselines or row.status != "ok" else [])]


def cells(row: Row, times: dict[tuple[str, str], dict[int, float]]) -> list[str]:
    """Return a row's cells; `times` has the rows of cuDNN to compare with."""
    last_word = row.kernel.split()[-1]
    reference = (
        "cuDNN forward" if last_word == "forward" else "cuDNN backward",
        f"first, dropout {DROPOUT}" if "dropout" in row.config else "first",
    )
    milliseconds = row.ms.get(LONGEST)
    cudnn = times.get(reference, {}).get(LONGEST)
    return [
        *(row.kernel, row.config, row.status),
        f"{max(row.errors):.2g}" if row.errors else "",
        *(f"{row.ms[n]:.4f}" if n in row.ms else "" for n in LENGTHS),
        f"{PRODUCTS[last_word] * 2 * B * H * LONGEST**2 * D / milliseconds / 1e9:.0f}" if milliseconds else "",
        f"{milliseconds / cudnn:.2f}" if milliseconds and cudnn else "",
        f"{EXPECTED[row.kernel]}" if row.kernel in EXPECTED and "," not in row.config else "",
    ]
