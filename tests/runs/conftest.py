"""A run with configs and data of its own, and the steps of `relumt run-record` on it."""

from pathlib import Path

import pytest
import torch

from relumt.cli import main
from relumt.git_revision import Revision
from relumt.runs.run_config import RunConfig, resolve_run_config
from tests.runs.cases import write_configs, write_data_bin


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return write_configs(tmp_path / "configs", "--arch transformer --dropout 0.1")


@pytest.fixture
def config(tmp_path: Path, configs: Path) -> RunConfig:
    data_bin = write_data_bin(tmp_path / "data-bin" / "small")
    return resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", data_bin)


@pytest.fixture(autouse=True)
def constant_revision(monkeypatch):
    """Editing the checkout while tests run must not change the provenance of a run."""
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)


@pytest.fixture
def step(config, configs, capsys, monkeypatch):
    """Run `relumt run-record STEP … small stock FLAGS…` and return what it prints on stdout and stderr."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def run(name, *flags, settings=()):
        where = ["--runs", config.folder.parents[2], "--configs", configs, "--data-bin", config.data_bin.folder]
        main(["run-record", name, *map(str, where), *settings, "small", "stock", *flags])
        return capsys.readouterr()

    return run


@pytest.fixture
def refused(step, capsys):
    """Run a step that is refused, and return its one-line message."""

    def run(*arguments, exit_status=2, **settings):
        with pytest.raises(SystemExit) as ended:
            step(*arguments, **settings)
        assert ended.value.code == exit_status
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("relumt: error: ") and printed.err.count("\n") == 1
        return printed.err

    return run
