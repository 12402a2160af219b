"""A working folder with everything that commands read."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from relumt.analysis.record import AnalysisFile, write_analysis
from relumt.installation import Revision
from relumt.runs.record import save_record
from tests.corpora.cases import write_bitext
from tests.papers.cases import analysis
from tests.runs import cases as runs

ALIGNED = "0-0 1p1\n0-0\n0-0\n"
OUTPUT = "S-0\tx\nT-0\ta b\nH-0\t-1\ta b\nD-0\t-1\ta b\nP-0\t-0.5 -0.5\nGenerate test with beam=2: BLEU4 = 0\n"


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """The checkpoint of a new ReLUFormer."""
    from tests.plugin.model.build import write_checkpoint  # imports fairseq, which takes seconds

    return write_checkpoint(tmp_path_factory.mktemp("model"), "--attention", "relu")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory, model) -> Path:
    """A folder with a model and its data-bin, a run with its data-bin and configurations, a bitext and examples."""
    from tests.plugin.model.build import write_data_bin

    folder = tmp_path_factory.mktemp("workshop")
    shutil.copy(model, folder / "model.pt")
    for subset in ("train", "valid", "test"):
        write_data_bin(folder / "bin", [(3, 4), (4, 3), (5, 5)], subset)
    runs.write_configs(folder / "configs")
    runs.write_data_bin(folder / "data-bin" / "small")
    run = folder / "runs" / "small" / "softmax" / "1"
    save_record(run, runs.with_value(runs.scored_record(), "data_bin", "data-bin/small"))
    write_analysis(AnalysisFile("test", [analysis()]), run / "analysis.json")
    runs.write_checkpoint(run)
    (run / ".lock").touch()
    (run / "train.log").write_text(runs.LOG)
    (run / "generate-test.txt").write_text(OUTPUT)
    write_bitext(folder / "corpus")
    (folder / "gold.align").write_text(ALIGNED)
    (folder / "documents").write_text("4\n")
    example = {"source": "w0", "target": "w1", "wrong": ["w2"]}
    (folder / "examples.jsonl").write_text(json.dumps(example) + "\n")
    return folder


@pytest.fixture
def work(workshop, tmp_path, monkeypatch) -> Path:
    """A copy of the workshop, as the working folder."""
    monkeypatch.chdir(shutil.copytree(workshop, tmp_path / "work"))
    return Path()


@pytest.fixture
def constant_environment(monkeypatch):
    """Keep the provenance of runs while the checkout is edited, on machines with and without a GPU."""
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
