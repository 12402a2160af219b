"""Figures by layer, from analyses made up here."""

import pytest

from relumt.errors import UserError
from relumt.runs.analysis_record import AlignmentErrors, AlignmentMetrics, AttentionMetrics, LayerAlignment
from relumt.tables import get_table
from tests.runs.cases import with_value
from tests.tables.cases import analysis, attention_layer, leave, make, record_of


def cells_of(name):
    return {cell.model: cell for cell in get_table(name).experiments("small")}


def test_a_row_a_model_site_and_line_a_column_a_layer_and_a_plot(tmp_path):
    cell = cells_of("rela_figure6")["rela_g"]
    for seed in (1, 2):
        leave(cell, tmp_path, record_of(cell, seed), analysis())
    (sheet,) = make("rela_figure6", tmp_path)
    assert sheet.head == ["model", "site", "null rate", "layer 1", "layer 2", "mean"]
    assert ["rela_g", "cross", "targets shuffled", "0.300", "0.300", "0.300"] in sheet.rows
    assert ["rela_g", "decoder", "variance over heads", "0.010", "0.010", "0.010"] in sheet.rows
    assert (tmp_path / "plots" / "rela_figure6-small.png").is_file() and (
        tmp_path / "plots" / "rela_figure6-small.svg"
    ).is_file()


def test_alignment_errors_are_of_cross_attention(tmp_path):
    cell = cells_of("rela_figure4")["softmax"]
    layer = LayerAlignment(AlignmentErrors([40.0], 50.0), AlignmentErrors([40.0], 50.0))
    leave(cell, tmp_path, record_of(cell), analysis(alignment=AlignmentMetrics(0, {"a": layer, "b": layer})))
    (sheet,) = make("rela_figure4", tmp_path)
    assert ["softmax", "cross", "shifted, average", "50.000", "50.000", "50.000"] in sheet.rows


def test_a_model_without_the_measure_is_left_out(tmp_path):
    cells = cells_of("rela_figure3")
    leave(cells["rela_g"], tmp_path, record_of(cells["rela_g"]), analysis())
    without = analysis(
        attention={f"{site}.0": AttentionMetrics(site, "Inhibitor") for site in ("encoder", "decoder", "cross")}
    )
    leave(cells["sparsemax"], tmp_path, record_of(cells["sparsemax"]), without)
    (sheet,) = make("rela_figure3", tmp_path)
    assert {row[0] for row in sheet.rows} == {"rela_g"}


def test_a_diverged_model_is_named_and_not_drawn_and_other_corpora_are_refused(tmp_path):
    cells = cells_of("rela_figure5")
    leave(cells["rela_g"], tmp_path, record_of(cells["rela_g"]), analysis())
    leave(cells["entmax15"], tmp_path, record_of(cells["entmax15"], bleu=0.2), analysis())
    (sheet,) = make("rela_figure5", tmp_path)
    assert {row[0] for row in sheet.rows} == {"rela_g"} and "entmax15: -" in sheet.notes
    other = with_value(record_of(cells["softmax"]), "evaluations.test.references_sha256", "x")
    leave(cells["softmax"], tmp_path, other, analysis())
    with pytest.raises(UserError, match="differ in the test set"):
        make("rela_figure5", tmp_path)


def test_runs_without_analysis_are_not_drawn(tmp_path):
    cell = cells_of("rela_figure5")["rela_g"]
    leave(cell, tmp_path, record_of(cell))
    with pytest.raises(UserError, match="no analysis with a head diversity"):
        make("rela_figure5", tmp_path)


def test_null_rates_of_heads(tmp_path):
    cell = cells_of("rela_figure7")["rela_g"]
    leave(cell, tmp_path, record_of(cell), analysis(attention={"x": attention_layer("cross", null=(0.83, 0.95))}))
    (sheet,) = make("rela_figure7", tmp_path)
    assert sheet.rows == [["layer 1", "0.830", "0.950"]]
