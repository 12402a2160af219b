"""[RF]'s table and figures of memories, from runs made up here."""

import json

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.runs.record import save_record
from relumt.tables import TABLES

SHARES = {"0.2": 0.3, "50": 0.9}


def leave_run(
    runs,
    model="ffn_relu",
    slots=32,
    seed=1,
    bleu=30.0,
    ratio=0.2,
    shares=SHARES,
    sha="a",
    beam="5",
    subset="test",
    dataset="small",
    **changed,
):
    flags = {"--encoder-ffn-embed-dim": str(slots), "--seed": str(seed), "--lr": "1", "--feedforward": model[4:]}
    evaluated = {"references_sha256": "r", "checkpoint_sha256": "a", "flags": {"--beam": beam}}
    evaluated["scores"] = {"bleu_tokenised": {"score": bleu, "signature": "tok:none"}}
    folder = runs / f"slots-{slots}" / dataset / model / str(seed)
    save_record(
        folder,
        {"dataset": dataset, "model": model, "seed": seed, "fingerprint": {"flags": flags | changed},
         "evaluation": {"test": evaluated}},
    )  # fmt: skip
    layers = {
        f"{side}.layers.0": {
            "variance_ratio": ratio * factor,
            "anisotropy": 0.01,
            "null_rate": 0.0,
            "top_share": shares,
        }
        for side, factor in (("encoder", 1), ("decoder", 3))
    }
    if shares is None:
        layers["encoder.layers.0"]["null_rate"] = layers["decoder.layers.0"]["null_rate"] = None
    analysis = {"schema": 1, "subset": subset, "checkpoints": [{"sha256": sha, "feedforward": layers}]}
    (folder / "analysis.json").write_text(json.dumps(analysis))


def test_table1_has_the_papers_rows_seeds_together_and_speeds(tmp_path):
    leave_run(tmp_path, bleu=30)
    leave_run(tmp_path, seed=2, bleu=32, ratio=0.4)
    leave_run(tmp_path, model="ffn_softmax", ratio=0.01)
    speed = {
        "ffn_relu": {"median": 1.0, "low": 1.0, "high": 1.0},
        "ffn_mish": {"median": 0.9, "low": 0.8, "high": 0.95},
    }
    (tmp_path / "speed-small.json").write_text(json.dumps({"baseline": "ffn_relu", "throughput": speed}))
    lines = TABLES["reluformer_table1"].make(tmp_path, tmp_path).splitlines()
    assert "| [RF], IWSLT14: softmax | 1024 |  | 33.08 | 0.01 |  |  |" in lines
    assert "| ffn_relu | 32 | 1, 2 | 31.00 ± 1.41 | 0.600 ± 0.283 | 0.300 ± 0.141 | 0.900 ± 0.424 |" in lines
    assert "| ffn_softmax | 32 | 1 | 30.00 | 0.020 | 0.010 | 0.030 |" in lines
    assert "| ffn_mish | 0.90 | 0.80–0.95 |" in lines


def test_figures_have_a_table_and_plots_and_leave_missing_cells_empty(tmp_path, capsys):
    for slots in (32, 64):
        leave_run(tmp_path, slots=slots)
    leave_run(tmp_path, model="ffn_gelu", slots=64, shares=None)
    for name in ("reluformer_figure1", "reluformer_figure2", "reluformer_figure3"):
        main(["table", name, "--runs", str(tmp_path), "--out", str(tmp_path / "plots")])
        assert (tmp_path / "plots" / f"{name}.png").is_file() and (tmp_path / "plots" / f"{name}.svg").is_file()
    printed = capsys.readouterr().out.splitlines()
    assert "| BLEU (tokenised) | 32 | 64 |" in printed
    assert "| ffn_gelu |  | 30.00 |" in printed
    assert "| ffn_relu | 32 | 0.300 | 0.900 |" in printed
    assert "| ffn_relu | 0.0100 | 0.0100 |" in printed


def test_a_figure_without_anything_to_show_is_refused(tmp_path):
    leave_run(tmp_path, model="ffn_gelu", shares=None)
    with pytest.raises(UserError, match="no run whose scores are never negative"):
        TABLES["reluformer_figure2"].make(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha": "b"}, "of another checkpoint than the scores"),
        ({"--lr": "2"}, "differ in the flags of training"),
        ({"beam": "1"}, "differ in the flags of translation"),
        ({"subset": "valid"}, "not of this run's test set alone"),
        ({"dataset": "other"}, "differ in the dataset"),
    ],
)
def test_what_does_not_compare_is_refused(tmp_path, changes, message):
    leave_run(tmp_path, slots=64)
    leave_run(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        TABLES["reluformer_table1"].make(tmp_path, tmp_path)


def test_a_run_that_is_there_twice_is_refused_and_another_dataset_left_out(tmp_path):
    leave_run(tmp_path / "a")
    leave_run(tmp_path / "b", dataset="other")
    assert "| ffn_relu | 32 | 1 |" in TABLES["reluformer_table1"].make(tmp_path, tmp_path, "small")
    leave_run(tmp_path / "c")
    with pytest.raises(UserError, match="ffn_relu with 32 slots and seed 1 is there twice"):
        TABLES["reluformer_table1"].make(tmp_path, tmp_path, "small")


def test_no_runs_and_an_unknown_name_end_in_one_line(tmp_path, capsys):
    for name, message in (("reluformer_table1", "no analysed run of ffn_*"), ("table1", "no table 'table1'; known: ")):
        with pytest.raises(SystemExit):
            main(["table", name, "--runs", str(tmp_path)])
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
