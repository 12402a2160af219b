"""The measurements that wait for a GPU, as far as they run without one."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.conftest import BENCHMARKS

QUEUE = BENCHMARKS / "gpu"
ITEMS = sorted(path.name for path in QUEUE.glob("*.sh") if path.name not in ("item.sh", "pack.sh"))


def call(program, *arguments, cwd=None, **variables):
    """Run a program from another folder than the checkout, with this Python, as on a machine that has all packages."""
    environment = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""} | variables
    return subprocess.run([program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["missing", "out"], "missing: no such folder; make it with "), ([".", "out", "--small"], "usage: ")],
)
def test_an_invalid_call_is_refused_in_one_line(name, arguments, message, tmp_path):
    done = call(QUEUE / name, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "report.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full_training.sh", ["| reluformer | 1 |", "| softmax | 1 |", '"valid_loss"']),
        (
            "hopper.sh",
            [
                "| hangs | hung |",
                "kernel: forward, tensor pipe: 62.5, shared memory: 10.5, L2: 30.0, main stall: math\n",
                "Hardware counters are missing: stand-in for ncu.",
            ],
        ),
        ("kernels.sh", ["| relu_l1, power 8 |", "## Inhibitor, bfloat16"]),
        ("inhibitor.sh", ["| 8 | inhibitor, fp16 pairs | forward |", "## Heads of 128"]),
        ("many_seeds.sh", ["| relu_l1_p8_qk_norm | ", "## Held-out text"]),
    ],
)
def test_an_item_runs_on_a_cpu(name, expected, tmp_path):
    """`steps.sh` is missing: it needs data-bins of real text."""
    (tmp_path / "text.txt").write_text("The house is old.\n")
    done = call(QUEUE / name, tmp_path, tmp_path / "out", "--tiny", cwd=tmp_path, HELD_OUT="text.txt")
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert all(text in report for text in expected)
    assert "Ended with status" not in report and "Not started" not in report
