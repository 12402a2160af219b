"""The `attack` fixture, and the table of attacks by kind after the tests."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.attacks.attack import Attack
from tests.prep.cases import Bitext, write_bitext

OUTCOMES = ("refused", "handled", "failed")


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


@pytest.fixture(scope="session")
def intact(tmp_path_factory) -> dict[str, Any]:
    """The contents of a checkpoint of a new ReLUFormer."""
    from tests.models.build import write_checkpoint  # imports fairseq, which takes seconds

    path = write_checkpoint(tmp_path_factory.mktemp("intact"), "--attention", "relu")
    return torch.load(path, weights_only=True)


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory) -> Path:
    """A data-bin with the vocabulary of `intact`."""
    from tests.models.build import write_data_bin

    return write_data_bin(tmp_path_factory.mktemp("data") / "data-bin", [(3, 4), (4, 3), (5, 5)])


@pytest.fixture
def bitext(attack) -> Bitext:
    """A tiny bitext in the folder `corpus`."""
    return write_bitext(attack.folder / "corpus")


@pytest.hookimpl(optionalhook=True)
def pytest_terminal_summary(terminalreporter):
    """Print attacks by kind: how many were tried, and how they ended."""
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "teardown":
                counts.update(value for name, value in report.user_properties if name == "attack")
    kinds = sorted({key.partition("/")[0] for key in counts})
    if not kinds:
        return
    terminalreporter.section("attacks")
    terminalreporter.write_line(f"{'kind':<16}{'tried':>8}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
    for kind in kinds:
        numbers = [counts[f"{kind}/{outcome}"] for outcome in OUTCOMES]
        terminalreporter.write_line(f"{kind:<16}{sum(numbers):>8}" + "".join(f"{number:>10}" for number in numbers))
