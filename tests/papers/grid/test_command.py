"""The command `relumt grid`: what it starts, prints and refuses."""

import os
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.commands.grid import report
from relumt.papers.grid.jobs import JobState, create_jobs
from relumt.process import usable_cores
from relumt.runs.dataset_config import configs_folder
from tests.papers.grid.conftest import experiments, make_status
from tests.papers.test_registry import ROOT


def grid(capsys, *arguments, exit_status=None):
    command = ["grid", *map(str, arguments)]
    if exit_status is None:
        main(command)
    else:
        with pytest.raises(SystemExit) as exit_error:
            main(command)
        assert exit_error.value.code == exit_status
    return capsys.readouterr()


def write_dataset(root, name, settings=""):
    (root / "configs" / "datasets").mkdir(parents=True)
    (root / "configs" / "datasets" / f"{name}.toml").write_text(settings)


def test_a_dry_run_prints_every_command_and_runs_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--preset", "smoke", "--seeds", 1, 2, "--root", ROOT, "--dry-run", "--flags", "--lr", "1"]
    lines = grid(capsys, "reluformer_table5", *options).out.splitlines()
    assert lines[0] == f"{ROOT}/data_prep/smoke.sh"
    assert lines[1] == f"RUNS=runs SEED=1 {ROOT}/scripts/analyze.sh smoke reluformer --lr 1"
    # Four models, each from two initializations, and two seeds.
    assert len(lines) == 1 + 4 * 2 * 2 and not list(tmp_path.iterdir())


def test_a_search_by_validation_loss_is_only_trained(capsys):
    options = ("--preset", "smoke", "--root", ROOT, "--dry-run")
    commands = [line.split() for line in grid(capsys, "study_search", *options).out.splitlines() if "SEED" in line]
    assert {command[2] for command in commands} == {f"{ROOT}/scripts/train.sh"}
    assert ["RUNS=runs/attention-dropout-0.1", "softmax", "--attention-dropout", "0.1"] in [
        [command[0], *command[4:]] for command in commands
    ]


def test_only_selects_models_of_the_table(capsys):
    options = ("--preset", "smoke", "--root", ROOT, "--dry-run")
    printed = grid(capsys, "rela_table3", "--only", "rela_g", "softmax", *options)
    models = [line.split()[-1] for line in printed.out.splitlines() if "run.sh" in line]
    assert models == ["softmax", "rela_g"]


def test_an_empty_setting_of_configs_is_the_checkouts(tmp_path, monkeypatch):
    """The scripts take an empty setting for none, too."""
    for value, expected in (("", tmp_path / "configs"), ("own", Path("own"))):
        monkeypatch.setenv("CONFIGS", value)
        assert configs_folder(tmp_path) == expected
    monkeypatch.delenv("CONFIGS")
    assert configs_folder(tmp_path) == tmp_path / "configs"


def test_threads_are_those_of_the_cores_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 6})
    assert usable_cores() == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_table"], "no table 'no_such_table'; known: activations, inhibitor_"),
        (["rela_table3", "--only", "stock"], "--only stock: not a model of rela_table3; its models: entmax15, rela_g"),
        (["inhibitor_table1", "--root", ROOT], "inhibitor_table1 has no runs; make it with scripts/reproduce.sh"),
        (["rela_table3", "--jobs", "0"], "argument --jobs: expected a whole number from 1"),
        (["rela_table3", "--seeds", "-1"], "argument --seeds: expected a whole number from 0"),
        (["rela_table3", "--seeds", "1", "1"], "--seeds must be different numbers"),
        (["rela_table3", "--slurm", "foo"], "--slurm foo: not KEY=VALUE"),
        (["rela_table3", "--slurm", "--jobs", "2"], "--jobs, --gpus-per-job and --jobs-per-gpu apply"),
        (["rela_table3", "--gpus-per-job", "2", "--jobs-per-gpu", "2"], "exclude each other; drop one of them"),
        (["rela_table3", "--preset", "small"], "no scripts/run.sh in it; give the checkout of relumt with --root"),
        (
            ["rela_table5", "--preset", "small", "--root", ROOT],
            "no data-bin for 'europarl7_en_de_aligned'; make it with data_prep/prepare.sh",
        ),
    ],
)
def test_an_invalid_request_is_reported_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = grid(capsys, *arguments, exit_status=2).err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--gpus-per-job", "1000"], ["--runs", "file"], ["--slurm", "a=b"]])
def test_no_data_is_made_for_an_invalid_request(root, tmp_path, capsys, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    write_dataset(root, "smoke")
    monkeypatch.setattr("relumt.commands.grid.make_data_bin", lambda script: pytest.fail("data was made"))
    monkeypatch.setattr("relumt.commands.grid.missing_data_scripts", lambda *arguments: [Path("script")])
    error = grid(capsys, "rela_table3", "--preset", "smoke", "--root", root, *arguments, exit_status=2).err
    assert error.count("\n") == 1


def test_failure_to_make_data_is_reported(root, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset(root, "smoke")
    (root / "data_prep").mkdir()
    script = root / "data_prep" / "smoke.sh"
    script.write_text("#!/bin/sh\necho no network\nexit 1\n")
    script.chmod(0o755)
    error = grid(capfd, "rela_table3", "--preset", "smoke", "--root", root, exit_status=1).err
    assert error.endswith(f"no network\nrelumt: error: {script} failed; its messages are above\n")


def test_a_data_bin_for_all_datasets_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("DATA_BIN", "mine")
    error = grid(capsys, "rela_table3", "--root", ROOT, exit_status=2).err
    assert "DATA_BIN is set, but a table may need several datasets" in error


def test_failed_runs_are_reported_with_the_end_of_their_logs(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "multi30k_de_en").mkdir(parents=True)
    write_dataset(root, "multi30k_de_en_small", 'data_bin = "multi30k_de_en"')
    script = root / "scripts" / "run.sh"
    script.write_text(script.read_text().replace("fails)", "rela_g)"))
    options = ["--preset", "small", "--only", "softmax", "rela_g", "--root", root]
    error = grid(capsys, "rela_table3", *options, exit_status=1).err
    run = "multi30k_de_en_small/rela_g/1"
    assert f"relumt: {run} failed; the end of runs/{run}/grid.log:\n" in error
    assert "    it is broken\n" in error
    assert error.endswith("relumt: 1 runs done, 1 failed\n")


def test_a_run_with_other_settings_is_a_user_error(tmp_path, capsys):
    jobs = create_jobs(experiments("one", "two"), [1], tmp_path, tmp_path, ())
    status = make_status(jobs)
    status.set_state(jobs[0], JobState.DIVERGED)
    status.set_state(jobs[1], JobState.REFUSED)
    jobs[1].folder.mkdir(parents=True)
    (jobs[1].folder / "grid.log").write_text("relumt: error: other flags\n")
    with pytest.raises(SystemExit) as exit_error:
        report(status)
    assert exit_error.value.code == 2
    error = capsys.readouterr().err
    assert f"relumt: data/two/1 refused; the end of {jobs[1].folder / 'grid.log'}:\n" in error
    assert error.endswith("    relumt: error: other flags\nrelumt: 0 runs done, 1 diverged, 1 refused, 0 failed\n")
