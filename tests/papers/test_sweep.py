"""Sweeps over settings, from made-up runs."""

from relumt.analysis.record import FeedForwardMetrics
from relumt.papers import get_table
from relumt.papers.ffn_table import ffn_experiment
from tests.papers.cases import analysis, make_record, render, row, write_run, write_translations


def test_one_row_per_setting_with_validation_loss_bleu_and_p(tmp_path):
    experiments = {experiment.variant: experiment for experiment in get_table("reluformer_sweep").experiments("small")}
    assert len(experiments) == 8
    default, other = (experiments[f"gamma-{gamma}-norm-0.1-entropy-0.1"] for gamma in (1, 0.5))
    for seed, bleu in ((1, 30.0), (2, 31.0)):
        record = make_record(default, seed, bleu)
        write_translations(write_run(default, tmp_path, record), record, set())
    record = make_record(other)
    write_translations(write_run(other, tmp_path, record), record, {0, 1, 2, 3, 4})
    (table,) = render("reluformer_sweep", tmp_path)
    baseline = "γ = 1, λ₁ = 0.1, λ₂ = 0.1"
    losses_and_bleu = [f"{measure}, multi30k_de_en_small" for measure in ("best validation loss", "BLEU tok")]
    assert table.header[:4] == ["", *losses_and_bleu, f"p against {baseline}"]
    assert row(table, baseline)[1:4] == ["4.500 ± 0.000", "30.50 ± 0.71", ""]
    loss, bleu, p_value = row(table, "γ = 0.5, λ₁ = 0.1, λ₂ = 0.1")[1:4]
    assert (loss, bleu) == ("4.500", "30.00") and float(p_value) < 0.05
    assert row(table, "γ = 2, λ₁ = 0.1, λ₂ = 0.1")[1:4] == [""] * 3
    assert any("fewer of gamma-0.5-norm-0.1-entropy-0.1/reluformer" in note for note in table.notes)


def test_temperatures_share_the_run_without_one_and_show_the_variance_ratio(tmp_path):
    """[RF] section 3.4: the temperature of softmax(x/τ) in feed-forward layers has little effect."""
    experiments = get_table("reluformer_temperature").experiments("small")
    default = ffn_experiment("small", "ffn_softmax", 512)
    assert experiments[2] == default
    assert experiments[0].flags == (*default.flags, "--memory-temperature", "0.25")
    metrics = {"encoder.layers.0": FeedForwardMetrics(512, 100, 0.01, 0.0, {}, 0.01)}
    write_run(default, tmp_path, analysis=analysis(feedforward=metrics))
    write_run(experiments[0], tmp_path)
    (table,) = render("reluformer_temperature", tmp_path)
    assert row(table, "τ = 1") == ["τ = 1", "4.500", "30.00", "", "0.010"]
    assert row(table, "τ = 0.25") == ["τ = 0.25", "4.500", "30.00", "", ""]  # not analyzed
