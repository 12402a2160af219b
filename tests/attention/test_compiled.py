"""The Triton kernels compile for a GPU, which the interpreter does not show: for sm_90, where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "count_instructions.py"


@pytest.mark.parametrize(
    ("only", "count"),
    [("relu, [a-z_]*$", 3), ("relu, [a-z_]*, row stats, all options", 3), ("inhibitor, [a-z_]*(, half)?$", 4),
     ("inhibitor, .*all options", 4), ("inhibitor_signed, backward_dkdv$", 1),
     ("sigmoid, backward_dkdv, all options", 1)],
)  # fmt: skip
def test_kernels_compile_with_and_without_what_is_optional_and_fit_into_registers(only, count, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", only],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + count and rows[0].endswith("| spilled bytes |")
    assert all(row.endswith("| 0 |") for row in rows[2:]), done.stdout
