"""The `attack` fixture and what it attacks."""

from pathlib import Path
from typing import Any

import pytest
import torch

from relumt.git_revision import Revision
from tests.attacks.attack import Attack
from tests.corpora.cases import Bitext, write_bitext


@pytest.fixture
def attack(request, tmp_path: Path, tmp_path_factory, capfd, monkeypatch, record_property):
    """Commands to attack with; counts how they end by the kind of the module's `attack` mark."""
    (kind,) = request.node.get_closest_marker("attack").args
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    attack = Attack(folder, capfd, tmp_path / "canary")
    yield attack
    assert not attack.canary.exists(), "executed: a payload ran"
    assert attack.outcomes, "the test attacked nothing"
    for outcome in attack.outcomes:
        record_property("attack", f"{kind}/{outcome}")


@pytest.fixture
def constant_environment(monkeypatch):
    """Keep the provenance of runs while the checkout is edited, on machines with and without a GPU."""
    monkeypatch.setattr("relumt.runs.environment.revision", Revision)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def intact(tmp_path_factory) -> dict[str, Any]:
    """The contents of a checkpoint of a new ReLUFormer."""
    from tests.plugin.model.build import write_checkpoint  # imports fairseq, which takes seconds

    path = write_checkpoint(tmp_path_factory.mktemp("intact"), "--attention", "relu")
    return torch.load(path, weights_only=True)


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory) -> Path:
    """A data-bin with the vocabulary of `intact`."""
    from tests.plugin.model.build import write_data_bin

    return write_data_bin(tmp_path_factory.mktemp("data") / "data-bin", [(3, 4), (4, 3), (5, 5)])


@pytest.fixture
def bitext(attack) -> Bitext:
    """A tiny bitext in the folder `corpus`."""
    return write_bitext(attack.folder / "corpus")
