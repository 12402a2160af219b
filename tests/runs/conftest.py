"""Configs, and a run planned over them."""

from pathlib import Path

import pytest

from relumt.runs.plan import Plan, plan_run
from tests.runs.cases import write_data_bin


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs"
    for dataset in ("default", "small"):
        (folder / "datasets" / dataset).mkdir(parents=True)
        (folder / "datasets" / dataset / "train.args").write_text("--lr 1e-3 --dropout 0.3  # both\n--max-epoch 2\n")
        (folder / "datasets" / dataset / "generate.args").write_text("--beam 5\n")
    (folder / "models").mkdir()
    (folder / "models" / "stock.args").write_text("--arch transformer --dropout 0.1\n")
    return folder


@pytest.fixture
def plan(tmp_path: Path, configs: Path) -> Plan:
    data_bin = write_data_bin(tmp_path / "data-bin" / "small")
    return plan_run("small", "stock", 1, configs, tmp_path / "runs", data_bin)
