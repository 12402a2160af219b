"""The command `relumt grid`: what it starts, prints and refuses."""

import os
from functools import partial
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.process import usable_cores
from tests.papers.test_registry import ROOT

SMOKE = ["--preset", "smoke", "--root", ROOT, "--dry-run"]


@pytest.fixture
def grid(tmp_path, run_command, monkeypatch):
    """Return a function that runs the command in an empty folder, and returns its exit status and output."""
    monkeypatch.chdir(tmp_path)
    return partial(run_command, main, "grid")


def write_dataset(root, name, settings=""):
    (root / "configs" / "datasets").mkdir(parents=True)
    (root / "configs" / "datasets" / f"{name}.toml").write_text(settings)


def test_a_dry_run_prints_every_command_and_runs_none(grid, tmp_path):
    options = ["--seeds", 1, 2, 1, *SMOKE, "--flags", "--lr", "1"]
    lines = grid("reluformer_table5", *options)[1].out.splitlines()
    assert lines[0] == f"{ROOT}/data_prep/smoke.sh"
    assert lines[1] == f"RUNS=runs SEED=1 {ROOT}/scripts/analyze.sh smoke reluformer --lr 1"
    # Four models, each from two initializations, and two seeds.
    assert len(lines) == 1 + 4 * 2 * 2 and not list(tmp_path.iterdir())


def test_only_selects_models_of_the_table(grid):
    printed = grid("rela_table3", "--only", "rela_g", "softmax", *SMOKE)[1].out
    assert [line.split()[-1] for line in printed.splitlines() if "run.sh" in line] == ["softmax", "rela_g"]


def test_threads_are_those_of_the_cores_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 6})
    assert usable_cores() == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inhibitor_table1", "--root", ROOT], "inhibitor_table1 has no runs; make it with relumt reproduce"),
        (["rela_table3", "--preset", "small"], "no scripts/run.sh in it; give the checkout of relumt with --root"),
        (
            ["rela_table5", "--preset", "small", "--root", ROOT],
            "no data-bin for 'europarl7_en_de_aligned'; make it with relumt prepare",
        ),
        (["rela_table3", *SMOKE], "DATA_BIN is set, but a table may need several datasets"),
        (["rela_table3", *SMOKE], "SEED is set, but a table may need several seeds, which --seeds lists"),
    ],
)
def test_an_invalid_request_is_reported_in_one_line(grid, arguments, message, monkeypatch):
    if " is set" in message:
        monkeypatch.setenv(message.split()[0], "1")
    status, printed = grid(*arguments)
    assert status == 2 and message in printed.err and printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--gpus-per-job", "1000"], ["--runs", "file"], ["--slurm", "timeout_min=1"]])
def test_no_data_is_made_for_an_invalid_request(root, grid, arguments, monkeypatch):
    Path("file").touch()
    write_dataset(root, "smoke")
    monkeypatch.setattr("relumt.commands.grid.missing_data_scripts", lambda *arguments: [Path("no-such-script")])
    status, printed = grid("rela_table3", "--preset", "smoke", "--root", root, *arguments)
    assert status == 2 and printed.err.count("\n") == 1 and "no-such-script" not in printed.err


def test_failure_to_make_data_is_reported(root, grid):
    write_dataset(root, "smoke")
    (root / "data_prep").mkdir()
    script = root / "data_prep" / "smoke.sh"
    script.write_text("#!/bin/sh\necho no network\nexit 1\n")
    script.chmod(0o755)
    status, printed = grid("rela_table3", "--preset", "smoke", "--root", root)
    assert status == 1
    assert printed.err.endswith(f"no network\nrelumt: error: {script} failed; its messages are above\n")


@pytest.mark.parametrize(("problem", "state", "expected"), [("fails)", "failed", 1), ("refused)", "refused", 2)])
def test_failed_and_refused_runs_are_reported_with_the_end_of_their_logs(root, grid, problem, state, expected):
    Path("data-bin", "multi30k_de_en").mkdir(parents=True)
    write_dataset(root, "multi30k_de_en_small", 'data_bin = "multi30k_de_en"')
    script = root / "scripts" / "run.sh"
    script.write_text(script.read_text().replace(problem, "rela_g)"))
    status, printed = grid("rela_table3", "--preset", "small", "--only", "softmax", "rela_g", "--root", root)
    run = "multi30k_de_en_small/rela_g/1"
    assert status == expected and f"relumt: {run} {state}; the end of runs/{run}/grid.log:\n" in printed.err
    assert f"    {'it is broken' if state == 'failed' else 'relumt: error: other flags'}\n" in printed.err
    assert printed.err.endswith(
        "relumt: 1 runs done, 1 failed\n" if state == "failed" else "relumt: 1 runs done, 1 refused, 0 failed\n"
    )
