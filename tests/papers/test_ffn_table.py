"""[RF] Table 1 and Figures 1 to 3, from made-up runs."""

import json
import re

import pytest

from relumt.analysis.record import FeedForwardMetrics
from relumt.errors import UserError
from relumt.papers import get_table
from relumt.papers.ffn_table import ffn_experiment
from tests.papers.cases import analysis, make_record, render, row, write_run

SHARES = {"0.2": 0.3, "50": 0.9}


def layers(ratio):
    """Return the measures of an encoder and a decoder layer, whose variance ratio is three times as large."""
    return {
        f"{side}.layers.0": FeedForwardMetrics(32, 100, ratio * factor, 0.0, SHARES, 0.01)
        for side, factor in (("encoder", 1), ("decoder", 3))
    }


def write_ffn_run(runs, model="ffn_relu", slots=32, seed=1, bleu=30.0, ratio=0.2, **changes):
    experiment = ffn_experiment("small", model, slots)
    record = make_record(experiment, seed, bleu)
    write_run(experiment, runs, record, analysis(**{"feedforward": layers(ratio)} | changes))


def test_table1_shows_the_papers_rows_means_over_seeds_and_speeds(tmp_path):
    write_ffn_run(tmp_path, bleu=30)
    write_ffn_run(tmp_path, seed=2, bleu=32, ratio=0.4)
    write_ffn_run(tmp_path, model="ffn_softmax", ratio=0.01)
    speed = {
        "ffn_relu": {"median": 1.0, "low": 1.0, "high": 1.0},
        "ffn_mish": {"median": 0.9, "low": 0.8, "high": 0.95},
    }
    figures = {"what": "training steps", "baseline": "ffn_relu", "device": "cpu", "revision": "c", "throughput": speed}
    (tmp_path / "reluformer_table1-multi30k_de_en_small.json").write_text(json.dumps(figures))
    table, speeds = render("reluformer_table1", tmp_path)
    assert ["[RF], IWSLT14: softmax", 1024, 33.08, 0.01, "", ""] in table.rows
    assert ["ffn_relu", 32, "31.00 ± 1.41", "0.600 ± 0.283", "0.300 ± 0.141", "0.900 ± 0.424"] in table.rows
    assert ["ffn_softmax", 32, "30.00", "0.020", "0.010", "0.030"] in table.rows
    assert ["ffn_mish", "0.90 (0.80–0.95)"] in speeds.rows


def test_figures_have_a_table_plots_and_the_papers_words_and_leave_missing_cells_empty(tmp_path):
    for slots in (32, 128):
        write_ffn_run(tmp_path, slots=slots)
    write_ffn_run(tmp_path, model="ffn_softmax", slots=128, bleu=0.5)
    tables = {}
    notes = {
        "reluformer_figure1": "the paper: d_h from 32 to 4096, of which 32",
        "reluformer_figure2": "the paper: softmax: top 0.2 %",
        "reluformer_figure3": "the paper: softmax collapses",
    }
    for name, note in notes.items():
        (tables[name],) = render(name, tmp_path)
        assert any(line.startswith(note) for line in tables[name].notes)
        assert {path.name for path in (tmp_path / "plots").glob(f"{name}*")} == {
            f"{name}-small.png",
            f"{name}-small.svg",
        }
    assert tables["reluformer_figure1"].header == ["BLEU (tokenized)", "32", "128"]
    assert tables["reluformer_figure1"].rows == [["ffn_relu", "30.00", "30.00"], ["ffn_softmax", "", "-"]]
    assert ["ffn_relu", 32, "0.300", "0.900"] in tables["reluformer_figure2"].rows
    assert ["ffn_relu", "0.0100", "0.0100"] in tables["reluformer_figure3"].rows


def test_runs_that_were_not_analyzed_are_named(tmp_path, capsys):
    experiment = ffn_experiment("small", "ffn_relu", 32)
    write_run(experiment, tmp_path)
    with pytest.raises(UserError, match="no run of this table is analyzed"):
        render("reluformer_figure3", tmp_path)
    assert re.search(r"slots-32/.*/ffn_relu/1: not analyzed", capsys.readouterr().err)


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
