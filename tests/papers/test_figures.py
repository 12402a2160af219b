"""Figures of attention by layer, from made-up analyses."""

from dataclasses import replace

import pytest

from relumt.analysis.record import AttentionMetrics
from relumt.errors import UserError
from tests.papers.cases import analysis, attention_layer, find_experiments, make_record, render, write_run, write_runs


def test_one_row_per_model_site_and_curve_one_column_per_layer_and_a_plot(tmp_path, monkeypatch):
    monkeypatch.undo()  # draws the plot
    write_runs("rela_figure6", tmp_path, {"rela_g": (30.0, 30.0)}, analysis())
    (table,) = render("rela_figure6", tmp_path)
    assert table.header == ["model", "site", "null rate", "layer 1", "layer 2", "mean"]
    assert ["rela_g", "cross", "targets shuffled", "0.300", "0.300", "0.300"] in table.rows
    assert ["rela_g", "encoder", "null rate", "0.200", "0.200", "0.200"] in table.rows
    assert ["rela_g", "decoder", "variance over heads", "0.010", "0.010", "0.010"] in table.rows
    plots = {path.name: path.stat().st_size for path in (tmp_path / "plots").iterdir()}
    assert plots.keys() == {"rela_figure6-small.png", "rela_figure6-small.svg"} and min(plots.values()) > 1000


def test_a_model_without_the_measure_is_left_out(tmp_path):
    write_runs("rela_figure3", tmp_path, {"rela_g": (30.0,)}, analysis())
    (table,) = render("rela_figure3", tmp_path)
    assert ["rela_g", "cross", "weights of 0", "0.600", "0.600", "0.600"] in table.rows
    without = analysis(
        attention={f"{site}.0": AttentionMetrics(site, "Inhibitor") for site in ("encoder", "decoder", "cross")}
    )
    write_runs("rela_figure3", tmp_path, {"sparsemax": (30.0,)}, without)
    (table,) = render("rela_figure3", tmp_path)
    assert {row[0] for row in table.rows} == {"rela_g"}


def test_a_diverged_model_is_named_and_not_drawn(tmp_path):
    write_runs("rela_figure5", tmp_path, {"rela_g": (30.0,), "entmax15": (0.2,)}, analysis())
    (table,) = render("rela_figure5", tmp_path)
    assert {row[0] for row in table.rows} == {"rela_g"} and "entmax15: -" in table.notes


def test_a_model_with_a_seed_without_the_measure_is_left_out(tmp_path):
    """Otherwise the curve would be a mean over fewer seeds than the notes say."""
    write_runs("rela_figure4", tmp_path, {"softmax": (30.0,)}, analysis())
    assert render("rela_figure4", tmp_path)
    experiment = find_experiments("rela_figure4")["softmax"]
    write_run(experiment, tmp_path, make_record(experiment, seed=2), analysis(alignment=None))
    with pytest.raises(UserError, match="no run has an analysis with alignment error rate"):
        render("rela_figure4", tmp_path)


def test_top_shares_from_a_tenth_of_a_percent_to_the_papers_limit(tmp_path):
    """[RF] Figure 4 draws a curve up to 1.5%; shares of the made-up heads are p/10 and p/5."""
    models = dict.fromkeys(("softmax", "reluformer"), (30.0,))
    write_runs("reluformer_figure4", tmp_path, models, analysis())
    (table,) = render("reluformer_figure4", tmp_path)
    assert table.header == ["model", "site", *(f"top {tenths / 10:g}%" for tenths in range(1, 16))]
    assert [row[:2] for row in table.rows] == [[m, s] for m in models for s in ("encoder", "decoder")]
    assert table.rows[0][2:] == [f"{0.15 * tenths / 10:.3f}" for tenths in range(1, 16)]
    assert (tmp_path / "plots" / "reluformer_figure4-small.png").is_file()


def test_a_head_without_shares_is_left_out_and_a_model_without_any_is_not_drawn(tmp_path):
    shares = attention_layer("encoder").top_share
    one_head = replace(attention_layer("encoder"), top_share={p: [None, share] for p, (_, share) in shares.items()})
    write_runs("reluformer_figure4", tmp_path, {"reluformer": (30.0,)}, analysis(attention={"encoder.0": one_head}))
    dead = replace(one_head, top_share={p: [None, None] for p in shares})
    write_runs("reluformer_figure4", tmp_path, {"softmax": (30.0,)}, analysis(attention={"encoder.0": dead}))
    (table,) = render("reluformer_figure4", tmp_path)
    assert [row[:3] for row in table.rows] == [["reluformer", "encoder", "0.020"]]


@pytest.mark.parametrize(
    ("name", "model", "row"),
    [
        ("reluformer_figure5", "reluformer", ["encoder", "more than 10 tokens away", "0.150"]),
        ("reluformer_figure5", "reluformer", ["encoder", "on stop words", "0.400"]),
        ("reluformer_figure5", "softmax", ["decoder", "stop words among the keys", "0.450"]),
        ("rela_figure4", "softmax", ["cross", "normal, best head", "40.000"]),
        ("rela_figure4", "softmax", ["cross", "normal, mean weights", "50.000"]),
        ("rela_figure4", "softmax", ["cross", "shifted, best head", "45.000"]),
        ("rela_figure4", "softmax", ["cross", "shifted, mean weights", "60.000"]),
        ("rela_figure5", "reluformer", ["cross", "softmax of α", "0.900"]),
        ("rela_figure5", "rela_g", ["cross", "α/Σα", "0.950"]),
    ],
)
def test_each_curve_shows_its_measure(tmp_path, name, model, row):
    """[RF] Figure 5: ReLU keeps weight on distant words and less on stop words. [RL] Figure 5: head diversity."""
    write_runs(name, tmp_path, {model: (30.0,)}, analysis())
    (table,) = render(name, tmp_path)
    assert [model, *row, row[-1], row[-1]] in table.rows


def test_alignment_errors_by_different_gold_alignments_are_not_mixed(tmp_path):
    first, second, *_ = find_experiments("rela_table5").values()
    aligned = analysis(alignments_sha256="a")
    write_run(first, tmp_path, analysis=aligned)
    for found in (aligned, replace(aligned, alignments_sha256=None), replace(aligned, alignment=None)):
        write_run(second, tmp_path, analysis=found)
        assert render("rela_table5", tmp_path)
    write_run(second, tmp_path, analysis=replace(aligned, alignments_sha256="b"))
    with pytest.raises(UserError, match="differ in the gold alignments: a and b; repeat one"):
        render("rela_table5", tmp_path)


def test_null_rates_of_heads(tmp_path):
    attention = {"x": attention_layer("cross", null=(0.83, 0.95))}
    write_runs("rela_figure7", tmp_path, {"rela_g": (30.0,)}, analysis(attention=attention))
    (table,) = render("rela_figure7", tmp_path)
    assert table.rows == [["layer 1", "0.830", "0.950"]]
