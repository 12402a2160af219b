"""Every table: its entry, its experiments, its counterpart in the papers."""

import re
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.papers import papers
from relumt.runs.dataset_config import load_dataset
from relumt.tables import TABLES, get_table
from relumt.tables.experiments import PRESETS
from tests.tables.cases import make

ROOT = Path(__file__).resolve().parents[2]


def test_every_table_and_figure_of_the_papers_can_be_reproduced():
    for paper, prefix in (("RF", "reluformer"), ("RL", "rela")):
        items = [
            name for name in papers()[paper] | papers()[paper]["figures"] if re.fullmatch(r"(table|figure)\d+", name)
        ]
        assert {f"{prefix}_{name}" for name in items} <= TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_its_summary_has_the_number_of_its_title(name):
    number = get_table(name).title.partition(":")[0]
    assert TABLES[name].summary.startswith(number) or name == "reluformer_sweep"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TABLES)
def test_what_it_trains_is_in_configs(name, preset):
    for experiment in get_table(name).experiments(preset):
        assert load_dataset(experiment.dataset, ROOT / "configs" / "datasets"), experiment
        assert (ROOT / "configs" / "models" / f"{experiment.model}.args").is_file(), experiment


def test_benchmarks_exist():
    for entry in TABLES.values():
        assert (ROOT / "benchmarks" / entry.speed_benchmark).exists()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"rela_table4"}))
def test_without_runs_it_says_what_makes_them(name, preset, tmp_path):
    with pytest.raises(UserError, match=f"scripts/reproduce.sh {name} --preset {preset}"):
        make(name, tmp_path, preset)


def test_the_operations_of_rela_table4_are_the_papers_but_for_rounding(tmp_path):
    (sheet,) = make("rela_table4", tmp_path)
    of_softmax, of_rela = sheet.rows
    assert of_softmax[2:] == ["239,000", "239,200", "23,990,000", "23,992,000"]
    assert of_rela[2:] == ["592,000", "592,100", "13,120,000", "13,121,000"]


def test_no_table_of_that_name():
    with pytest.raises(UserError, match="no table 'table1'; known: reluformer_table1, "):
        get_table("table1")
