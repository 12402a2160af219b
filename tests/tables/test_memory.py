"""[RF]'s table and figures of memories, from runs made up here."""

import json
import re
from dataclasses import replace

import pytest

from relumt.errors import UserError
from relumt.runs.analysis_record import FeedForwardMetrics
from relumt.tables.ffn_table import cell
from tests.runs.cases import with_value
from tests.tables.cases import analysis, leave, make, record_of

SHARES = {"0.2": 0.3, "50": 0.9}


def layers(ratio):
    """Of both sides; a decoder's ratio is three times its encoder's."""
    return {
        f"{side}.layers.0": FeedForwardMetrics(32, 100, ratio * factor, 0.0, SHARES, 0.01)
        for side, factor in (("encoder", 1), ("decoder", 3))
    }


def leave_memory(runs, model="ffn_relu", slots=32, seed=1, bleu=30.0, ratio=0.2, change=None, **changes):
    of = cell("small", model, slots)
    record = record_of(of, seed, bleu)
    leave(
        of,
        runs,
        with_value(record, *change) if change else record,
        analysis(**{"feedforward": layers(ratio)} | changes),
    )


def test_table1_has_the_papers_rows_seeds_together_and_speeds(tmp_path):
    leave_memory(tmp_path, bleu=30)
    leave_memory(tmp_path, seed=2, bleu=32, ratio=0.4)
    leave_memory(tmp_path, model="ffn_softmax", ratio=0.01)
    speed = {
        "ffn_relu": {"median": 1.0, "low": 1.0, "high": 1.0},
        "ffn_mish": {"median": 0.9, "low": 0.8, "high": 0.95},
    }
    figures = {"what": "training steps", "baseline": "ffn_relu", "device": "cpu", "throughput": speed}
    (tmp_path / "reluformer_table1-multi30k_de_en_small.json").write_text(json.dumps(figures))
    sheet, speeds = make("reluformer_table1", tmp_path)
    assert ["[RF], IWSLT14: softmax", 1024, 33.08, 0.01, "", ""] in sheet.rows
    assert ["ffn_relu", 32, "31.00 ± 1.41", "0.600 ± 0.283", "0.300 ± 0.141", "0.900 ± 0.424"] in sheet.rows
    assert ["ffn_softmax", 32, "30.00", "0.020", "0.010", "0.030"] in sheet.rows
    assert ["ffn_mish", "0.90 (0.80–0.95)"] in speeds.rows


def test_figures_have_a_table_and_plots_and_leave_missing_cells_empty(tmp_path):
    for slots in (32, 128):
        leave_memory(tmp_path, slots=slots)
    leave_memory(tmp_path, model="ffn_softmax", slots=128, bleu=0.5)
    sheets = {}
    for name in ("reluformer_figure1", "reluformer_figure2", "reluformer_figure3"):
        (sheets[name],) = make(name, tmp_path)
        assert (tmp_path / "plots" / f"{name}-small.png").is_file() and (
            tmp_path / "plots" / f"{name}-small.svg"
        ).is_file()
    assert sheets["reluformer_figure1"].head == ["BLEU (tokenized)", "32", "128"]
    assert sheets["reluformer_figure1"].rows == [["ffn_relu", "30.00", "30.00"], ["ffn_softmax", "", "-"]]
    assert ["ffn_relu", 32, "0.300", "0.900"] in sheets["reluformer_figure2"].rows
    assert ["ffn_relu", "0.0100", "0.0100"] in sheets["reluformer_figure3"].rows


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sha256": "b"}, "of another checkpoint than the scores"),
        ({"change": ("provenance.flags.--dropout", "0")}, "differ in the flags of training"),
        ({"change": ("evaluations.test.setup.flags", {})}, "differ in the flags of translation"),
        ({"change": ("dataset", "other")}, "of other/ffn_relu, not of multi30k_de_en_small/ffn_relu"),
    ],
)
def test_what_does_not_compare_is_refused(tmp_path, changed, message):
    leave_memory(tmp_path, slots=128)
    leave_memory(tmp_path, **changed)
    with pytest.raises(UserError, match=message):
        make("reluformer_table1", tmp_path)


def test_a_run_that_was_not_analysed_is_named(tmp_path, capsys):
    of = cell("small", "ffn_relu", 32)
    leave(of, tmp_path, record_of(of))
    with pytest.raises(UserError, match="no run of this table is analysed"):
        make("reluformer_figure3", tmp_path)
    assert re.search(r"slots-32/.*/ffn_relu/1: not analysed", capsys.readouterr().err)


def test_a_memory_of_one_slot_has_no_anisotropy(tmp_path):
    leave_memory(tmp_path, slots=128)
    alone = {name: replace(layer, anisotropy=None) for name, layer in layers(0.2).items()}
    leave_memory(tmp_path, slots=32, feedforward=alone)
    (sheet,) = make("reluformer_figure3", tmp_path)
    assert ["ffn_relu", "", "0.0100"] in sheet.rows
