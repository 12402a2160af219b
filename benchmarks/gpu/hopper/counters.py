"""Read hardware counters of the three plain kernels with Nvidia's profiler `ncu`, if it is there and may do so."""

import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import TIMED_BATCH, Job

SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats")
UNITS = {"tensor pipe": "tensor", "shared memory": "l1tex__data_bank", "L2": "lts__"}
"""What the report shows: the largest percentage whose name contains a text, because names vary with versions."""
STALLED = "issue_stalled_"


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the counters of each kernel, or {"skipped": why}."""
    if not (ncu := find_ncu()):
        yield {"skipped": "ncu is not installed"}
        return
    sections = [word for section in SECTIONS for word in ("--section", section)]
    command = [ncu, "--csv", "--page", "raw", "--clock-control", "none", *sections, "--kernel-name"]
    command += ["regex:^(forward|backward_dkdv|backward_dq)$", sys.executable, __file__, str(job.timed[0])]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    reason = next((line for line in lines if "ERROR" in line), "no kernel was profiled")  # such as missing permission
    yield from list(parse(done.stdout)) or [{"skipped": f"ncu: {reason}"}]


def find_ncu() -> str | None:
    """Return the path of ncu."""
    installed = sorted(Path("/").glob("usr/local/cuda*/bin/ncu"))
    return shutil.which("ncu") or (str(installed[-1]) if installed else None)


def parse(text: str) -> Iterator[dict[str, Any]]:
    """Yield the counters in the output of ncu, which has a line of units after the header."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    for row in list(csv.DictReader(lines))[1:]:
        numbers = {name: number for name, value in row.items() if (number := to_number(value)) is not None}
        shares = {name: number for name, number in numbers.items() if ".pct" in name}
        stalls = {name: number for name, number in numbers.items() if STALLED in name and "selected" not in name}
        counters: dict[str, Any] = {
            unit: max((number for name, number in shares.items() if text in name), default=None)
            for unit, text in UNITS.items()
        }
        if stalls:
            counters["main stall"] = max(stalls, key=stalls.__getitem__).partition(STALLED)[2].partition("_per_")[0]
        yield {"counters": {"kernel": row["Kernel Name"]} | counters, "all": shares | stalls}


def to_number(value: str | None) -> float | None:
    """Return a number that may have commas between thousands; None for text."""
    try:
        return float((value or "").replace(",", ""))
    except ValueError:
        return None


def main() -> None:
    """Launch the kernels once, for n given as the argument."""
    from calls import import_relumt, make_call

    kernels, n = import_relumt("hopper.launch"), int(sys.argv[1])
    call = make_call(Job("", ""), TIMED_BATCH, n, n, "cuda")
    call.backward(kernels, call.forward(kernels)[3])


if __name__ == "__main__":
    main()
