"""The measurements that wait for a GPU, as far as they run without one."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.cases import BENCHMARKS

ITEMS = sorted(path.name for path in (BENCHMARKS / "gpu").glob("*.sh") if path.name not in ("item.sh", "pack.sh"))


def run_item(name, folder, *arguments):
    """Run an item from another folder than the checkout, with this Python, as on a machine that has all packages."""
    return subprocess.run(
        [BENCHMARKS / "gpu" / name, *map(str, arguments)], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: "),
        (["missing", "out"], "missing: no such folder; make it with benchmarks/gpu/pack.sh"),
        ([".", "out", "--small"], "usage: "),
        ([".", "out"], "needs a GPU, but torch sees none; give --tiny"),
    ],
)
def test_an_invalid_call_is_refused_in_one_line(name, arguments, message, tmp_path):
    run = run_item(name, tmp_path, *arguments)
    assert run.returncode == 2
    assert message in run.stderr and run.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "report.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full_training.sh", ["| reluformer | 1 |", "| softmax | 1 |", '"valid_loss"']),
        ("hopper.sh", ["| hangs | hung |"]),
        ("many_seeds.sh", ["| relu2former | "]),
    ],
)
def test_an_item_runs_on_a_cpu(name, expected, tmp_path):
    """`steps.sh` is missing: it needs data-bins of real text."""
    run = run_item(name, tmp_path, tmp_path, tmp_path / "out", "--tiny")
    assert run.returncode == 0, run.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert all(text in report for text in expected)
    assert "Ended with status" not in report and "Not started" not in report
