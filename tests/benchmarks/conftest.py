"""Fixtures that run the benchmarks in benchmarks/ on tiny data."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.plugin.model.build import SMALL, write_data_bin

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LENGTHS = [(7, 5), (3, 8), (1, 2), (6, 6), (4, 4), (9, 3)]


def table_rows(printed):
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in printed.splitlines() if line[:2] == "| "
    ]


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs a benchmark with arguments and returns the rows that it prints."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        printed = capsys.readouterr().out
        assert re.search(r"^Machine: .+, \d+ threads?; (revision [0-9a-f]{7}|relumt \d)", printed, re.MULTILINE)
        return table_rows(printed)[1:]

    return run


@pytest.fixture
def data(tmp_path):
    for subset in ("train", "valid", "test"):
        write_data_bin(tmp_path / "data-bin", LENGTHS * 4, subset)
    return tmp_path / "data-bin"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tiny.toml"
    flags = " ".join([*SMALL, "--optimizer adam --lr 1e-3 --max-tokens 20 --source-lang de --target-lang en"])
    path.write_text(f"train = '''{flags}'''")
    return path
