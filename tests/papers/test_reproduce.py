"""scripts/reproduce.sh and `relumt reproduce`: the steps, their order and the exit status."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.commands import papers
from relumt.papers import TABLES, get_table
from relumt.papers.grid import measurements
from relumt.papers.measured import MeasuredTable
from relumt.papers.rendering import RenderedTable
from tests.papers.cases import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reproduce(tmp_path, run_command, monkeypatch):
    """Return a function that runs the command without training, and returns its exit status and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(papers, "run_grid", lambda arguments: True)
    return partial(run_command, main, "reproduce", "--root", ROOT, "--preset", "small")


@pytest.fixture
def started(monkeypatch):
    """The arguments of the benchmarks and analyses that would have been started."""
    commands = []
    monkeypatch.setattr(measurements, "run_python", lambda *arguments: commands.append(arguments) is None)
    return commands


def finish_runs(name, models=None):
    for experiment in get_table(name).experiments("small"):
        if models is None or experiment.model in models:
            write_run(experiment, Path("runs"))


def test_help_lists_all_tables_and_one_without_runs_is_printed(reproduce):
    status, printed = reproduce("-h")
    assert status == 0 and all(name in printed.out for name in TABLES)
    status, printed = reproduce("rela_table4")
    assert status == 0 and printed.out.count("**[RL] Table 4") == 1


def test_the_script_passes_flags_after_two_hyphens_to_training(tmp_path):
    options = ["--dry-run", "rela_table3", "--preset=smoke", "--", "--lr", "1", "--bf16"]
    command = [ROOT / "scripts" / "reproduce.sh", *options]
    environment = os.environ | {"PYTHON": sys.executable, "RUNS": "elsewhere"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert f"RUNS=elsewhere SEED=1 {ROOT}/scripts/run.sh smoke softmax --lr 1 --bf16\n" in done.stdout


@pytest.mark.parametrize(("failure", "tables"), [(1, 1), (2, 0)])
def test_a_failed_run_leaves_a_table_and_a_refused_one_does_not(reproduce, monkeypatch, failure, tables):
    def fail(arguments):
        if failure == 2:
            raise SystemExit(2)
        return False

    monkeypatch.setattr(papers, "run_grid", fail)
    finish_runs("rela_table3", {"softmax"})
    status, printed = reproduce("rela_table3")
    assert status == failure and printed.out.count("**[RL] Table 3") == tables


def test_speeds_of_finished_models_are_measured_relative_to_the_first(reproduce, started):
    finish_runs("rela_table2", {"softmax", "rela_g"})
    reproduce("rela_table2", "--seeds", "1")
    ((script, runs, dataset, *options),) = started
    assert (script.name, str(runs), dataset) == ("decoding.py", "runs", "multi30k_de_en_small")
    assert options[:3] == ["--models", "softmax", "rela_g"]


def test_speeds_need_the_baseline_and_this_machine(reproduce, started):
    finish_runs("rela_table2", {"rela_g"})
    assert "they are relative to softmax, which has no finished run" in reproduce("rela_table2")[1].err
    finish_runs("rela_table2")
    assert "no speeds with --slurm" in reproduce("rela_table2", "--slurm")[1].err
    assert started == []


def test_a_failed_benchmark_is_status_1(reproduce, monkeypatch):
    monkeypatch.setattr(measurements, "run_python", lambda *arguments: False)
    finish_runs("reluformer_table4")
    status, printed = reproduce("reluformer_table4")
    assert status == 1 and "**[RF] Table 4" in printed.out


def test_feedforward_variants_are_timed_with_the_flags_of_training(reproduce, started):
    reproduce("reluformer_table1", "--flags", "--fp16-scale-window", "1")
    ((script, data_bin, *options),) = started
    assert (script.name, data_bin) == ("training.py", Path("data-bin/multi30k_de_en"))
    assert "ffn_swiglu" in options and options[-3:] == ["--flags", "--fp16-scale-window", "1"]


@dataclass(frozen=True)
class TableOfAModule(MeasuredTable):
    def render(self, context):
        return [RenderedTable("measured", ["seconds"], [["1"]])]


@pytest.mark.parametrize(("module", "status", "has_table"), [("this", 0, True), ("timeit", 2, False), ("no", 1, True)])
def test_a_module_measures_a_table_without_runs_and_its_exit_status_counts(
    reproduce, monkeypatch, module, status, has_table
):
    """`timeit` refuses the options with status 2; `no` does not exist, which has status 1."""
    monkeypatch.setitem(TABLES, "measured", TableOfAModule("", "measured", module, caption="measured"))
    ended, printed = reproduce("measured", "--flags", "--option")
    assert (ended, "seconds" in printed.out) == (status, has_table)
    ended, printed = reproduce("measured", "--dry-run", "--flags", "--option")
    assert ended == 0
    assert printed.out.endswith(f"-P -m {module} --preset small --out runs/measured-small --option\n")


@pytest.mark.parametrize("name", ["inhibitor_table1", "rela_table4"])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--seeds", "1", "2"], "--seeds"),
        (["--only", "softmax", "--jobs", "2"], "--only, --jobs"),
        (["--gpus-per-job", "2"], "--gpus-per-job"),
        (["--jobs-per-gpu", "2"], "--jobs-per-gpu"),
        (["--slurm"], "--slurm"),
    ],
)
def test_options_of_runs_are_refused_for_a_table_without_runs(reproduce, name, given, named):
    status, printed = reproduce(name, *given, "--dry-run")
    assert status == 2 and printed.out == ""
    assert f"{name} has no runs, so {named} would have no effect" in printed.err
