"""A run in the working folder, with configs and data of its own, and `relumt run` with a stand-in for fairseq."""

from pathlib import Path

import pytest
import torch

from relumt.cli import main
from relumt.installation import Revision, describe_fairseq
from relumt.runs.run_config import RunConfig, resolve_run_config
from tests.runs.cases import FakeFairseq, replace_fairseq, write_configs, write_data_bin

ERROR = "relumt: error: "


@pytest.fixture
def configs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_configs(Path("configs"), "--arch transformer --dropout 0.1")


@pytest.fixture
def config(configs: Path) -> RunConfig:
    write_data_bin(Path("data-bin/small"))
    return resolve_run_config("small", "stock", 1, configs, Path("runs"), None)


FAIRSEQ = describe_fairseq()


@pytest.fixture(autouse=True)
def constant_environment(monkeypatch):
    """Editing the checkout while tests run must not change a run; what takes time is looked up once, or left out."""
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)
    monkeypatch.setattr("relumt.runs.environment.describe_fairseq", lambda: FAIRSEQ)
    monkeypatch.setattr("relumt.files.sync", lambda path: None)


@pytest.fixture
def fairseq(monkeypatch) -> FakeFairseq:
    return replace_fairseq(monkeypatch)


@pytest.fixture
def run(config, fairseq, capsys, monkeypatch):
    """Call `relumt run --STAGE OPTIONS -- small stock FLAGS`; return what it printed, or its one error line."""
    monkeypatch.setattr("relumt.runs.environment.find_fp32_backend", lambda: "default")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def call(stage, *flags, options=(), status=0):
        ended = 0
        try:
            main(["run", f"--{stage}", *options, "--", "small", "stock", *flags])
        except SystemExit as exit_:
            ended = exit_.code
        printed = capsys.readouterr()
        assert ended == status, printed.err
        if status == 0:
            return printed.out + printed.err
        (error,) = [line for line in printed.err.splitlines() if line.startswith(ERROR)]
        return error

    return call
