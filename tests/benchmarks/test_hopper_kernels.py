"""The measurement of the Hopper kernels runs stand-ins here; the kernels need an H100."""

import json
import os
import subprocess
import sys

from tests.benchmarks.cases import BENCHMARKS, table_rows

HOPPER = BENCHMARKS / "gpu" / "hopper"


def measure(*arguments, **variables):
    command = [sys.executable, HOPPER / "measure.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)


def state(process):
    """Return a process's state as ps prints it, empty if there is none; Z is a killed process that nobody waits for."""
    return subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout.strip()


def test_each_job_ends_and_its_results_are_kept(tmp_path):
    ended = measure(tmp_path, "--tiny", "--limit", "2")
    assert ended.returncode == 0, ended.stderr
    computes, hangs, raises = json.loads((tmp_path / "hopper.json").read_text())["jobs"]
    assert computes["status"] == "ok", computes["messages"]
    names = [list(result["errors"]) for result in computes["results"]]
    assert names == [["out", "Σw", "Σw log w"], ["out", "kept"], ["dq"], ["dk", "dv", "bits"]]
    assert hangs["status"] == "hung" and 2 <= hangs["seconds"] < 4
    processes = hangs["results"][0]["processes"]
    assert len(processes) == 2 and all(state(process)[:1] in ("", "Z") for process in processes)
    assert raises["status"] == "failed: RuntimeError: stand-in for an error"
    assert "with a second line" in raises["messages"]
    assert (tmp_path / "hopper.md").read_text() == ended.stdout
    assert all(row[0] == "| stand-in on the CPU" for row in table_rows(ended.stdout)[2:])


def test_jobs_beyond_the_budget_are_not_reached(tmp_path):
    rows = table_rows(measure(tmp_path, "--tiny", "--budget", "0").stdout)[2:]
    assert [row[1:3] for row in rows] == [[name, "not reached"] for name in ("computes", "hangs", "raises")]


def test_kernels_need_a_hopper_gpu(tmp_path):
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = bool\n__version__ = 'fast to import'\n")
    ended = measure(tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("relumt: error: a Hopper GPU (compute capability 9.0) is needed, found: no GPU.")
    assert ended.stderr.count("\n") == 1


def test_times_are_compared_with_the_same_pass_of_cudnn(monkeypatch):
    monkeypatch.syspath_prepend(str(HOPPER))
    import report

    def outcome(kernel, config, *results, status="ok"):
        return {"kernel": kernel, "config": config, "status": status, "results": list(results)}

    def cudnn(name, config, ms):
        return {"kernel": f"cuDNN {name}", "config": config, "n": 2048, "ms": ms}

    printed = report.make_report({}, [
        outcome(
            "baselines", "first", cudnn("forward", "first", 0.4), cudnn("backward", "first", 0.8),
            {"kernel": "cuDNN forward", "config": "first, dropout 0.1", "failed": "no kernel"}, status="hung",
        ),
        outcome("forward", "3wg", {"n": 512, "errors": {"out": 0.002, "Σw": 0.003}}, {"n": 2048, "ms": 0.2}),
        outcome("forward", "2wg, dropout 0.1, Philox 7", {"n": 2048, "ms": 0.2}),
        outcome("dq", "2wg", *({"n": n, "ms": n / 2**13} for n in (512, 1024, 2048))),
        outcome("dkdv", "2wg, writes bits", *({"n": n, "ms": n / 2**13} for n in (512, 1024, 2048))),
    ])  # fmt: skip
    rows = {(row[0], row[1]): row[2:] for row in table_rows(printed)[2:]}
    assert rows["| cuDNN forward", "first, dropout 0.1"][0] == "no kernel" and rows["| baselines", "first"][0] == "hung"
    assert rows["| forward", "3wg"] == ["ok", "0.003", "", "", "0.2000", "687", "0.50", "0.215 |"]
    assert rows["| forward", "2wg, dropout 0.1, Philox 7"][-2:] == ["", " |"]
    assert rows["| dq", "2wg"][3:7] == ["0.1250", "0.2500", "550", "0.31"]
    assert rows["| backward", "dq 2wg + dkdv 2wg, writes bits"][4:7] == ["0.5000", "687", "0.62"]
