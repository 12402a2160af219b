"""Speeds read from what benchmarks wrote."""

import json

import pytest

from relumt.errors import UserError
from relumt.papers.speeds import MIN_REPEATS, format_ratio, median_ratio
from tests.papers.cases import render, write_runs

RELATIVE = {"softmax": {"median": 1.0, "low": 1.0, "high": 1.0}, "rela_g": {"median": 0.9, "low": 0.85, "high": 0.95}}
DEVICE = "x86_64 (cpu, fp32)"
KIND = {"what": "40 steps", "baseline": "softmax", "device": DEVICE, "revision": "revision c", "relative": RELATIVE}


def test_an_interval_contains_the_median_in_95_percent_of_repeats_or_is_left_out():
    ratios = [0.9, 1.3, 1.0, 1.1, 0.8]
    assert median_ratio(ratios) == {"median": 1.0} and format_ratio(median_ratio(ratios)) == "1.00"
    assert 1 - 2 / 2 ** (MIN_REPEATS - 1) < 0.95 <= 1 - 2 / 2**MIN_REPEATS  # that of the range
    assert median_ratio([*ratios, 1.2]) == {"median": pytest.approx(1.05), "low": 0.8, "high": 1.3}
    assert format_ratio(None) == ""


def test_parameters_and_speeds_are_shown_beside_the_papers(tmp_path):
    write_runs("rela_table2", tmp_path, dict.fromkeys(RELATIVE, (30.0,)))
    speeds = tmp_path / "rela_table2-multi30k_de_en_small.json"
    speeds.write_text(json.dumps({"training": KIND, "decoding": KIND}))
    (table,) = render("rela_table2", tmp_path)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["rela_g"] == ["72.34", "2.34", "0.93", "0.90 (0.85–0.95)", "0.98", "0.90 (0.85–0.95)"]
    assert rows["sparsemax"] == ["72.31", "", "0.26", "", "0.54", ""]
    origin = f"relative to softmax, on {DEVICE}, revision c; median, and 95% interval from 6 repeats on"
    assert f"training: 40 steps, {origin}" in table.notes
    speeds.write_text("{")
    with pytest.raises(UserError, match="not in the expected format"):
        render("rela_table2", tmp_path)


def test_decoding_speed_is_a_second_table_of_reluformer_table4(tmp_path):
    write_runs("reluformer_table4", tmp_path, {"rela_g": (30.0,)})
    speeds = {"training": KIND, "decoding": KIND}
    (tmp_path / "reluformer_table4-multi30k_de_en_small.json").write_text(json.dumps(speeds))
    _, table = render("reluformer_table4", tmp_path)
    assert any("revision c; median" in note for note in table.notes)
    assert ["rela", "0.99", "0.90 (0.85–0.95)"] in [list(row) for row in table.rows]


def test_speed_by_length_has_one_row_per_group_and_a_plot(tmp_path):
    group = {"shortest": 3, "longest": 8, "relative": RELATIVE | {"relu": {"median": 0.8}}}
    speeds = {key: KIND[key] for key in ("what", "baseline", "device", "revision")} | {"groups": [group]}
    write_runs("rela_figure2", tmp_path, {"rela_g": (30.0,)})
    (tmp_path / "rela_figure2-multi30k_de_en_small.json").write_text(json.dumps(speeds))
    (table,) = render("rela_figure2", tmp_path)
    assert table.rows == [["3–8", "1.00 (1.00–1.00)", "0.90 (0.85–0.95)", "0.80"]]
    assert (tmp_path / "plots" / "rela_figure2-small.png").is_file()
