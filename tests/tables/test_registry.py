"""Every table: its script, its runs, its row in the papers."""

import os
import re
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.papers import papers
from relumt.tables import TABLES, get_table
from relumt.tables.experiments import PRESETS
from tests.tables.cases import make

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {path.stem: path for path in (ROOT / "scripts" / "tables").glob("*.sh") if os.access(path, os.X_OK)}


def test_every_table_and_figure_of_the_papers_has_a_row_and_a_script():
    for paper, prefix in (("RF", "reluformer"), ("RL", "rela")):
        names = {
            name for name in [*papers()[paper], *papers()[paper]["figures"]] if re.fullmatch(r"(table|figure)\d", name)
        }
        assert {f"{prefix}_{name}" for name in names} <= TABLES.keys()
    assert TABLES.keys() == SCRIPTS.keys()


@pytest.mark.parametrize("name", TABLES)
def test_a_script_makes_its_own_table_and_says_what_it_is(name):
    text = SCRIPTS[name].read_text()
    assert re.search(rf"^make_(table|runs) {name} \"\$@\"$", text, flags=re.MULTILINE)
    number = re.search(r"(table|figure)(\d)$", name)
    assert not number or f"{number[1].capitalize()} {number[2]}" in text.splitlines()[1]
    assert get_table(name).title


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TABLES)
def test_what_it_trains_is_in_configs(name, preset):
    for cell in get_table(name).experiments(preset):
        assert (ROOT / "configs" / "datasets" / cell.dataset / "train.args").is_file(), cell
        assert (ROOT / "configs" / "models" / f"{cell.model}.args").is_file(), cell


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"rela_table4"}))
def test_without_runs_it_says_what_makes_them(name, preset, tmp_path):
    with pytest.raises(UserError, match=f"{name}.sh --preset {preset}"):
        make(name, tmp_path, preset)


def test_the_operations_of_rela_table4_are_the_papers_but_for_rounding(tmp_path):
    (sheet,) = make("rela_table4", tmp_path)
    of_softmax, of_rela = sheet.rows
    assert of_softmax[2:] == ["239,000", "239,200", "23,990,000", "23,992,000"]
    assert of_rela[2:] == ["592,000", "592,100", "13,120,000", "13,121,000"]


def test_no_table_of_that_name():
    with pytest.raises(UserError, match="no table 'table1'; known: reluformer_table1, "):
        get_table("table1")
