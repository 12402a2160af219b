"""The Triton kernels compile for a GPU (sm_90, which need not be present) and fit into its registers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "count_instructions.py"
POINTWISE = {r"relu, [a-z_]*$": 3}
OTHERS = {
    r"inhibitor, [a-z_]*(, half)?$": 4,
    r"relu, [a-z_]*, row stats, all options$": 3,
    r"inhibitor, .*all options$": 4,
    r"inhibitor_signed, backward_dkdv$": 1,
    r"sigmoid, backward_dkdv$": 1,
}
"""Regular expression of the kernels' names -> how many kernels it matches."""


@pytest.mark.slow
@pytest.mark.parametrize("num_kernels", [POINTWISE, OTHERS])
def test_kernels_compile_and_spill_no_registers(num_kernels, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "|".join(num_kernels)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    header, _, *kernels = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert header.endswith("| spilled bytes |")
    assert len(kernels) == sum(num_kernels.values()), done.stdout
    assert all(kernel.endswith("| 0 |") for kernel in kernels), done.stdout
