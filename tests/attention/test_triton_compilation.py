"""The Triton kernels compile for GPUs that need not be present, and fit into their registers and shared memory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]
NUM_KERNELS = 149


def documented_misfits(architecture):
    """Return kernel -> spilled bytes, from the table in docs/kernels.md."""
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    table = text.partition("| kernel | GPU | spilled bytes |\n")[2].partition("\n\n")[0]
    rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[1:])
    return {kernel: int(spilled) for kernel, gpu, spilled in rows if gpu == architecture}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_every_kernel_compiles_and_fits_the_gpu(architecture, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "benchmarks/count_instructions.py", "--arch", architecture, "--misfits"],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"\n{NUM_KERNELS} kernels compiled with Triton " in done.stdout
    rows = [
        line.split("|")[1:-1] for line in done.stdout.splitlines() if re.match(r"\| (relu|sigmoid|inhibitor)", line)
    ]
    for row in rows:
        needed, granted = map(float, row[-1].split(" of "))
        assert needed <= granted, done.stdout
    assert {row[0].strip(): int(row[-2]) for row in rows} == documented_misfits(architecture)
