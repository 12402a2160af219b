"""Figures of attention by layer, from made-up analyses."""

import pytest

from relumt.errors import UserError
from relumt.runs.analysis_record import AlignmentErrors, AlignmentMetrics, AttentionMetrics, LayerAlignment
from relumt.tables import get_table
from tests.runs.cases import with_value
from tests.tables.cases import analysis, attention_layer, make_record, render, write_run


def experiments_of(name):
    return {experiment.model: experiment for experiment in get_table(name).experiments("small")}


def test_one_row_per_model_site_and_curve_one_column_per_layer_and_a_plot(tmp_path):
    experiment = experiments_of("rela_figure6")["rela_g"]
    for seed in (1, 2):
        write_run(experiment, tmp_path, make_record(experiment, seed), analysis())
    (table,) = render("rela_figure6", tmp_path)
    assert table.header == ["model", "site", "null rate", "layer 1", "layer 2", "mean"]
    assert ["rela_g", "cross", "targets shuffled", "0.300", "0.300", "0.300"] in table.rows
    assert ["rela_g", "decoder", "variance over heads", "0.010", "0.010", "0.010"] in table.rows
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "rela_figure6-small.png",
        "rela_figure6-small.svg",
    }


def test_alignment_errors_by_layer_of_cross_attention(tmp_path):
    experiment = experiments_of("rela_figure4")["softmax"]
    layer = LayerAlignment(AlignmentErrors([40.0], 50.0), AlignmentErrors([40.0], 50.0))
    alignment = AlignmentMetrics(0, {"a": layer, "b": layer})
    write_run(experiment, tmp_path, analysis=analysis(alignment=alignment))
    (table,) = render("rela_figure4", tmp_path)
    assert ["softmax", "cross", "shifted, mean weights", "50.000", "50.000", "50.000"] in table.rows


def test_a_model_without_the_measure_is_left_out(tmp_path):
    experiments = experiments_of("rela_figure3")
    write_run(experiments["rela_g"], tmp_path, analysis=analysis())
    without = analysis(
        attention={f"{site}.0": AttentionMetrics(site, "Inhibitor") for site in ("encoder", "decoder", "cross")}
    )
    write_run(experiments["sparsemax"], tmp_path, analysis=without)
    (table,) = render("rela_figure3", tmp_path)
    assert {row[0] for row in table.rows} == {"rela_g"}


def test_a_diverged_model_is_named_and_not_drawn_and_other_corpora_are_refused(tmp_path):
    experiments = experiments_of("rela_figure5")
    write_run(experiments["rela_g"], tmp_path, analysis=analysis())
    write_run(experiments["entmax15"], tmp_path, make_record(experiments["entmax15"], bleu=0.2), analysis())
    (table,) = render("rela_figure5", tmp_path)
    assert {row[0] for row in table.rows} == {"rela_g"} and "entmax15: -" in table.notes
    other = with_value(make_record(experiments["softmax"]), "evaluations.test.references_sha256", "x")
    write_run(experiments["softmax"], tmp_path, other, analysis())
    with pytest.raises(UserError, match="differ in the test set"):
        render("rela_figure5", tmp_path)


def test_runs_without_analysis_are_not_drawn(tmp_path):
    experiment = experiments_of("rela_figure5")["rela_g"]
    write_run(experiment, tmp_path)
    with pytest.raises(UserError, match="no run has an analysis with head diversity"):
        render("rela_figure5", tmp_path)


def test_null_rates_of_heads(tmp_path):
    experiment = experiments_of("rela_figure7")["rela_g"]
    attention = {"x": attention_layer("cross", null=(0.83, 0.95))}
    write_run(experiment, tmp_path, analysis=analysis(attention=attention))
    (table,) = render("rela_figure7", tmp_path)
    assert table.rows == [["layer 1", "0.830", "0.950"]]
