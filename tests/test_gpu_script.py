"""The structure of benchmarks/gpu.sh, with stubs instead of Python, nvidia-smi and git."""

import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.sh"

PYTHON = """#!/bin/bash
# Records its arguments; prints what the step that it stands for would print, or fails.
printf '%s\\n' "$*" >>"$STUBS/calls"
case $* in
    *cuda.is_available*) [[ -z ${NO_TORCH:-} ]] || exit 1; echo "${SEES_GPU:-True}" ;;
    *triton.__version__*) echo "torch: 2.13.0"; echo "Triton: 3.7.1" ;;
    *"relumt.cli doctor"*) echo "ok       relumt: 0.1.0"; exit "${DOCTOR_STATUS:-0}" ;;
    *attention.py*--causal*--padding*|*attention.py*--padding*--causal*)
        echo "| n | system |"; echo "no kernel image" >&2; exit 1 ;;
    *attention.py*) echo "| n | system |" ;;
    *) echo "done: $1" ;;
esac
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run gpu.sh with stubs in the folder of the test; return its exit status, stdout and stderr."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "nvidia-smi").write_text('#!/bin/bash\necho "index, name, driver_version"; echo "0, H100, 570.86.15"\n')
    (tmp_path / "git").write_text('#!/bin/bash\necho "${COMMIT:-0123456789abcdef}"\n')
    for name in ("python", "nvidia-smi", "git"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("STUBS", str(tmp_path))
    monkeypatch.setenv("PYTHON", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("RELUMT_KERNELS", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ([], {}, "usage: benchmarks/gpu.sh OUT [DATA-BIN [DOCUMENTS]]"),
        (["out", "missing"], {}, "missing: no such folder; name a data-bin"),
        (["out"], {"SEES_GPU": "False"}, "benchmarks/gpu.sh needs a GPU, but torch sees none; run relumt doctor"),
    ],
)
def test_invalid_requests_write_nothing(run, tmp_path, monkeypatch, arguments, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status, printed, error = run(*arguments)
    assert (status, printed) == (2, "")
    assert error.startswith("relumt: error: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_one_report_has_every_step(run, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_STATUS", "1")
    (tmp_path / "data bin").mkdir()
    status, printed, error = run("out", "data bin", "data bin")
    assert status == 1  # of the steps that the stub lets fail
    report = (tmp_path / "out" / "report.md").read_text()
    steps = re.findall(r"^## (.+)$", report, re.MULTILINE)
    assert steps[:4] == ["versions", "clocks", "doctor", "tests"] and steps[-1] == "clocks_at_the_end"
    assert {"training_sentences", "training_documents"} < set(steps)
    assert re.search(r"^commit: [0-9a-f]{7,}", report, re.MULTILINE)
    assert "torch: 2.13.0\nTriton: 3.7.1" in report
    assert "```\nok       relumt: 0.1.0\n```\n\n**Failed with status 1.**" in report
    failed = re.findall(r"^(\w+): FAILED with status 1", error, re.MULTILINE)
    assert failed == ["doctor", "sentences", "inhibitor_padded"]
    assert report.count("**Failed with status 1.**") == 3 and report.count("\nno kernel image\n") == 2
    assert report.count("\ndone: benchmarks/training.py\n") == 2
    assert printed.endswith(f"all results: {tmp_path}/out/report.md\n")
    calls = (tmp_path / "calls").read_text()
    for flags in ("--lengths 32 64", "--dropout 0.1 --lengths 512", "--head-dim 128", "--dtype float16", "--causal"):
        assert f" {flags}" in calls, flags


def test_a_second_call_runs_only_steps_that_failed_or_have_other_data(run, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    run("out", "first")
    report = (tmp_path / "out" / "report.md").read_text()
    (tmp_path / "calls").unlink()
    status, _, error = run("out", "second")
    assert status == 1
    assert re.findall(r"^(\w+): FAILED with status 1", error, re.MULTILINE) == ["sentences", "inhibitor_padded"]
    calls = (tmp_path / "calls").read_text()
    assert calls.count("attention.py") == 2
    assert calls.count(f"benchmarks/training.py {tmp_path}/second") == 1 and "first" not in calls
    assert (tmp_path / "out" / "report.md").read_text() == report.replace("first", "second")


@pytest.mark.parametrize("changed", ["RELUMT_KERNELS: .*", "0123456789abcdef"])
def test_results_of_another_environment_are_refused_and_kept(run, tmp_path, changed):
    run("out")
    report = (tmp_path / "out" / "report.md").read_text()
    versions = tmp_path / "out" / "versions.stdout"
    versions.write_text(re.sub(changed, "another", versions.read_text()))
    status, _, error = run("out")
    assert status == 2
    assert error.startswith("relumt: error: out: has results of another commit, GPU or") and error.count("\n") == 1
    assert (tmp_path / "out" / "report.md").read_text() == report
