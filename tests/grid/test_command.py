"""relumt grid: what it starts, what it says, and what it refuses."""

import pytest

from relumt.cli import main
from tests.tables.test_registry import ROOT


def grid(capsys, *arguments, status=None):
    command = ["grid", *map(str, arguments)]
    if status is None:
        main(command)
    else:
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == status
    return capsys.readouterr()


def write_empty_dataset(root, name, settings=""):
    (root / "configs" / "datasets").mkdir(parents=True)
    (root / "configs" / "datasets" / f"{name}.toml").write_text(settings)


def test_a_dry_run_prints_every_command_and_runs_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = grid(
        capsys,
        "reluformer_table5",
        "--preset",
        "smoke",
        "--seeds",
        1,
        2,
        "--root",
        ROOT,
        "--dry-run",
        "--flags",
        "--lr",
        "1",
    )
    lines = printed.out.splitlines()
    assert lines[0] == f"{ROOT}/data_prep/smoke.sh"
    assert lines[1] == f"RUNS=runs SEED=1 {ROOT}/scripts/analyze.sh smoke reluformer --lr 1"
    assert len(lines) == 1 + 2 * 3 and not list(tmp_path.iterdir())


def test_only_chooses_among_the_models_of_the_table(capsys):
    arguments = ("--preset", "smoke", "--root", ROOT, "--dry-run")
    printed = grid(capsys, "rela_table3", "--only", "rela_g", "softmax", *arguments)
    lines = [line.split()[-1] for line in printed.out.splitlines() if "run.sh" in line]
    assert lines == ["softmax", "rela_g"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_table"], "no table 'no_such_table'; known: reluformer_table1"),
        (["rela_table3", "--only", "stock"], "--only stock: not a model of rela_table3; its models: entmax15, rela_g"),
        (["rela_table3", "--jobs", "0"], "--jobs must be positive, not 0"),
        (["rela_table3", "--seeds", "-1"], "--seeds must be whole numbers from 0"),
        (["rela_table3", "--seeds", "1", "1"], "--seeds must be whole numbers from 0, each once"),
        (["rela_table3", "--slurm", "foo"], "--slurm foo: not KEY=VALUE"),
        (["rela_table3", "--preset", "small"], "no scripts/run.sh in it; give the checkout of relumt with --root"),
    ],
)
def test_what_cannot_be_ends_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = grid(capsys, *arguments, status=2).err
    assert message in error and error.count("\n") == 1


def test_data_that_no_script_makes_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = grid(capsys, "rela_table5", "--preset", "small", "--root", ROOT, status=2).err
    assert "no data-bin of 'europarl7_aligned'; make it with data_prep/prepare.sh" in error


def test_data_that_cannot_be_made_ends_in_one_line(root, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_empty_dataset(root, "smoke")
    (root / "data_prep").mkdir()
    script = root / "data_prep" / "smoke.sh"
    script.write_text("#!/bin/sh\necho no network\nexit 1\n")
    script.chmod(0o755)
    error = grid(capfd, "rela_table3", "--preset", "smoke", "--root", root, status=2).err
    assert error.endswith(f"no network\nrelumt: error: {script} failed; what it said is above\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slurm", "--jobs", "2"], "--jobs and --gpus-per-job are of this machine"),
        (["--slurm", "partition"], "--slurm partition: not KEY=VALUE"),
    ],
)
def test_slurm_is_told_by_its_own_parameters(root, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "smoke").mkdir(parents=True)
    write_empty_dataset(root, "smoke")
    assert message in grid(capsys, "rela_table3", "--preset", "smoke", "--root", root, *arguments, status=2).err


def test_a_data_bin_for_all_datasets_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("DATA_BIN", "mine")
    assert "DATA_BIN is set, which is of one dataset" in grid(capsys, "rela_table3", "--root", ROOT, status=2).err


@pytest.fixture
def small(root, tmp_path, monkeypatch):
    """The checkout with the data of rela_table3's small runs, whose rela_g becomes what is asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "multi30k_de_en").mkdir(parents=True)
    write_empty_dataset(root, "multi30k_de_en_small", 'data_bin = "multi30k_de_en"')

    def small(rela_g):
        script = root / "scripts" / "run.sh"
        script.write_text(script.read_text().replace(f"{rela_g})", "rela_g)"))
        return root

    return small


def test_failures_are_reported_with_the_end_of_their_logs(small, capsys):
    printed = grid(capsys, "rela_table3", "--preset", "small", "--root", small("fails"), status=1)
    assert (
        "relumt: multi30k_de_en_small/rela_g/1 failed; the end of runs/multi30k_de_en_small/rela_g/1/grid.log:"
        in printed.err
    )
    assert "    it is broken\n" in printed.err
    assert printed.err.endswith("relumt: 3 runs done, 1 failed\n")


def test_a_run_that_is_there_and_was_made_otherwise_is_an_error_of_the_user(small, capsys):
    printed = grid(capsys, "rela_table3", "--preset", "small", "--root", small("refused"), status=2)
    assert "relumt: multi30k_de_en_small/rela_g/1 refused; the end of " in printed.err
    assert printed.err.endswith("    relumt: error: of other flags\nrelumt: 3 runs done, 1 refused, 0 failed\n")
