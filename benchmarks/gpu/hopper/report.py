"""The table of what was measured."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs import TIMED_BATCH, WIDTH

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
COMPARED = 2048
TIMES = ("forward", "backward", "host forward", "host backward", "eager step", "step in a graph")
HEADER = ["kernel", "config", "status", "worst error", "ms of", *(f"n = {n}" for n in LENGTHS), "cuDNN's / ours"]
NOTES = f"""
Times are medians in ms for batch {TIMED_BATCH} and {WIDTH // 64} heads of 64, or {WIDTH // 128} of 128 if the row says
so, in bfloat16 unless it says fp16.
"host" is the time that the host takes to launch a pass. A "step" is both passes as PyTorch calls them; a compiled one
that has run gave the bits of the eager one. The last column compares with cuDNN's softmax at n = {COMPARED}, with a
causal mask or dropout if the row has one of these.
"""


@dataclass
class Row:
    """What is known about a kernel; `ms` is pass → n → time."""

    kernel: str
    config: str
    status: str = "ok"
    errors: list[float] = field(default_factory=list)
    ms: dict[str, dict[int, float]] = field(default_factory=dict)


def make_report(versions: dict[str, Any], outcomes: list[dict[str, Any]]) -> str:
    """Return the table in Markdown.

    Args:
        versions: name → the GPU or a version.
        outcomes: kernel, config, status and results of each job.
    """
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    references = {row.config: row.ms for row in rows if row.kernel == "cuDNN"}
    lines = [HEADER, ["---"] * len(HEADER), *(line for row in rows for line in lines_of(row, references))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    results = [result for outcome in outcomes for result in outcome["results"]]
    described = ", ".join(f"{name}: {value}" for name, value in versions.items())
    return f"{described}\n\n{table}\n{NOTES}{''.join(counter_lines(results))}"


def counter_lines(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines with the hardware counters of each kernel, in percent of the maximum, or why they are missing."""
    for result in results:
        if "skipped" in result:
            yield f"\nHardware counters are missing: {result['skipped']}.\n"
        if "counters" in result:
            yield "\n" + ", ".join(f"{name}: {value}" for name, value in result["counters"].items()) + "\n"


def rows_of(outcome: dict[str, Any]) -> list[Row]:
    """Return the row of a job, or one for each baseline that a job timed."""
    row = Row(outcome["kernel"], outcome["config"], outcome["status"])
    baselines: dict[tuple[str, str], Row] = {}
    for result in outcome["results"]:
        target = row
        if "kernel" in result:
            name = result["kernel"], result["config"]
            target = baselines.setdefault(name, Row(*name))
            target.status = result.get("failed", "ok")
        target.errors += result.get("errors", {}).values()
        for name in TIMES:
            if name in result:
                target.ms.setdefault(name, {})[result["n"]] = result[name]
    return [*baselines.values(), *([row] if not baselines or row.status != "ok" else [])]


def lines_of(row: Row, references: dict[str, dict[str, dict[int, float]]]) -> list[list[str]]:
    """Return a line for each pass; `references` has the times of cuDNN by configuration."""
    lines = []
    config = next((name for name in ("dropout", "causal") if name in row.config), "plain")
    config = "128, " * row.config.startswith("128") + config
    for name in row.ms or [""]:
        ms = row.ms.get(name, {})
        cudnn = references.get(config, {}).get(name, {}).get(COMPARED)
        lines.append([
            *(row.kernel, row.config, row.status, f"{max(row.errors):.2g}" if row.errors else "", name),
            *(f"{ms[n]:.4f}" if n in ms else "" for n in LENGTHS),
            f"{cudnn / ms[COMPARED]:.2f}" if cudnn and COMPARED in ms else "",
        ])  # fmt: skip
    return lines
