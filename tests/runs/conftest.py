"""Configs, a run planned over them, and its steps."""

from pathlib import Path

import pytest
import torch

from relumt.cli import main
from relumt.runs.environment import Revision
from relumt.runs.run_config import RunConfig, resolve_run_config
from tests.runs.cases import write_data_bin, write_dataset


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs"
    (folder / "datasets").mkdir(parents=True)
    for dataset in ("default", "small"):
        write_dataset(folder, dataset)
    (folder / "models").mkdir()
    (folder / "models" / "stock.args").write_text("--arch transformer --dropout 0.1\n")
    return folder


@pytest.fixture
def config(tmp_path: Path, configs: Path) -> RunConfig:
    data_bin = write_data_bin(tmp_path / "data-bin" / "small")
    return resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", data_bin)


@pytest.fixture
def step(config, configs, capsys, monkeypatch):
    """Run `relumt run-record STEP … small stock FLAGS…` and return what it prints on stdout and stderr."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # Editing the checkout while tests run must not change the provenance between two steps.
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)

    def run(name, *flags, settings=()):
        where = ["--runs", str(config.folder.parents[2]), "--configs", str(configs)]
        main(
            ["run-record", name, *where, "--data-bin", str(config.data_bin.folder), *settings, "small", "stock", *flags]
        )
        return capsys.readouterr()

    return run


@pytest.fixture
def refused(step, capsys):
    """The one line with which a step is refused."""

    def run(*arguments, **settings):
        with pytest.raises(SystemExit) as exit_status:
            step(*arguments, **settings)
        assert exit_status.value.code == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("relumt: error: ") and printed.err.count("\n") == 1
        return printed.err

    return run
