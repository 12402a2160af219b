"""Every table: its entry, its experiments, its counterpart in the papers."""

import dataclasses
import re
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.papers import TABLES, get_table
from relumt.papers.experiments import PRESETS
from relumt.papers.runs import MODEL_FLAGS
from relumt.plugin.criterions.attention_regularization import AttentionRegularizationConfig
from relumt.printed_results import papers
from relumt.runs.dataset_config import load_dataset, read_models
from relumt.runs.flags import parse_flag_lines
from tests.papers.cases import render

ROOT = Path(__file__).resolve().parents[2]
MODELS = read_models(ROOT / "configs")


def test_every_table_and_figure_of_the_papers_can_be_reproduced():
    for paper, prefix in (("RF", "reluformer"), ("RL", "rela")):
        items = [
            name for name in papers()[paper] | papers()[paper]["figures"] if re.fullmatch(r"(table|figure)\d+", name)
        ]
        assert {f"{prefix}_{name}" for name in items} <= TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_its_experiments_and_benchmark_exist(name):
    table = get_table(name)
    script = table.speed_benchmark.partition(" ")[0]
    assert table.title and (ROOT / "benchmarks" / script).exists()
    for experiment in [experiment for preset in PRESETS for experiment in table.experiments(preset)]:
        assert load_dataset(experiment.dataset, ROOT / "configs" / "datasets"), experiment
        assert experiment.model in MODELS, experiment


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"rela_table4"}))
def test_without_runs_the_message_says_what_makes_them(name, tmp_path):
    for preset in PRESETS:
        with pytest.raises(UserError, match=f"scripts/reproduce.sh {name} --preset {preset}"):
            render(name, tmp_path, preset)


def test_the_operations_of_rela_table4_are_those_of_the_paper_except_for_rounding(tmp_path):
    (table,) = render("rela_table4", tmp_path)
    softmax, rela = table.rows
    assert softmax[2:] == ["239,000", "239,200", "23,990,000", "23,992,000"]
    assert rela[2:] == ["592,000", "592,100", "13,120,000", "13,121,000"]


def test_an_unknown_table_is_refused():
    with pytest.raises(UserError, match=r"no table 'reluformer_tabel1'; did you mean reluformer_table1\? known: activ"):
        get_table("reluformer_tabel1")


@pytest.mark.parametrize("model", MODELS)
def test_models_of_configs_differ_only_in_flags_that_may_differ_within_a_column(model):
    assert not [flag for flag in parse_flag_lines(MODELS[model], model) if not MODEL_FLAGS.fullmatch(flag)]


def test_every_flag_of_the_regularizer_and_no_other_one_of_training_may_differ_within_a_column():
    flags = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(AttentionRegularizationConfig)}
    assert {flag for flag in flags if MODEL_FLAGS.fullmatch(flag)} == {
        flag for flag in flags if flag.startswith("--attention-")
    }
    for flag in ("--attention-dropout", "--dropout", "--lr", "--weight-decay", "--encoder-attention-heads"):
        assert not MODEL_FLAGS.fullmatch(flag)
