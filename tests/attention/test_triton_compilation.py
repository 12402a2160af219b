"""The Triton kernels compile for a GPU (sm_90, which need not be present) and fit into its registers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "count_instructions.py"
NUM_KERNELS = {
    r"relu, [a-z_]*$": 3,
    r"relu, [a-z_]*, row stats, all options$": 3,
    r"inhibitor, [a-z_]*(, half)?$": 4,
    r"inhibitor, .*all options$": 4,
    r"inhibitor_signed, backward_dkdv$": 1,
    r"sigmoid, backward_dkdv$": 1,
}
"""Kernels that are compiled, with and without what is optional: regular expression of their names → their number."""


def test_kernels_compile_and_spill_no_registers(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "|".join(NUM_KERNELS)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    header, _, *kernels = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert header.endswith("| spilled bytes |")
    assert len(kernels) == sum(NUM_KERNELS.values()), done.stdout
    assert all(kernel.endswith("| 0 |") for kernel in kernels), done.stdout
