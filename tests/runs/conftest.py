"""A run with configs and data of its own, and the steps of `relumt run` on it."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from relumt.errors import exit_on_user_error
from relumt.git_revision import Revision
from relumt.runs.run_config import RunConfig, resolve_run_config
from tests.runs.cases import take_step, write_configs, write_data_bin


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


class StepOutcome(NamedTuple):
    """What a step returned, and what it printed on stderr."""

    result: Any
    err: str


@pytest.fixture
def step(config, configs, capsys, monkeypatch):
    """Take a step of the run of `small stock FLAGS…`, with the options of `relumt run` in `settings`."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def run(function, *flags, settings=()):
        folders = ["--runs", config.folder.parents[2], "--configs", configs, "--data-bin", config.data_bin.folder]
        with exit_on_user_error():
            result = take_step(function, [*folders, *settings, "small", "stock", *flags])
        printed = capsys.readouterr()
        assert printed.out == ""
        return StepOutcome(result, printed.err)

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
