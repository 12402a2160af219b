"""Fixtures that run the benchmarks in benchmarks/ on tiny data."""

import re
import runpy
import sys

import pytest

from tests.benchmarks.cases import BENCHMARKS, LENGTHS
from tests.plugin.model.build import SMALL, write_data_bin


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs a benchmark with arguments and returns what it prints, which names the revision."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        printed = capsys.readouterr().out
        assert re.search(r"revision [0-9a-f]{7}|relumt \d", printed)
        return printed

    return run


@pytest.fixture
def data(tmp_path):
    for subset in ("train", "valid", "test"):
        write_data_bin(tmp_path / "data-bin", LENGTHS * 4, subset)
        (tmp_path / "data-bin" / f"{subset}.docs").write_text("20\n4\n")
    return tmp_path / "data-bin"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tiny.toml"
    flags = " ".join([*SMALL, "--optimizer adam --lr 1e-3 --max-tokens 20 --source-lang de --target-lang en"])
    path.write_text(f"train = '''{flags}'''")
    return path
