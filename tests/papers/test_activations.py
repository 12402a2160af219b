"""The table of [AF]: validation loss and BLEU by feed-forward variant."""

import re
from pathlib import Path

import pytest

from relumt.attention.feedforward import FEEDFORWARDS
from relumt.papers import get_table
from relumt.runs.flags import join_flag_values
from relumt.runs.model_config import require_model
from tests.papers.cases import make_record, render, row, write_run, write_translations
from tests.runs.cases import with_value

ROOT = Path(__file__).resolve().parents[2]
MODELS = [f"ffn_{name}" for name in "relu relu2 aptx1 relu_gt swiglu geglu gelu swish mish".split()]


@pytest.fixture(scope="module")
def experiments():
    return {experiment.model: experiment for experiment in get_table("activations").experiments("small")}


@pytest.fixture
def write(experiments, tmp_path):
    """Return a function that writes a finished run with its translations; the sentences in `wrong` are wrong."""

    def write_one(name, seed=1, loss=4.5, wrong=()):
        record = make_record(experiments[f"ffn_{name}"], seed, bleu=30.0 + seed, **{"--feedforward": name})
        record = with_value(record, "training.best_valid_loss", loss)
        write_translations(write_run(experiments[f"ffn_{name}"], tmp_path, record), record, set(wrong))

    return write_one


@pytest.mark.parametrize("model", MODELS)
def test_a_row_differs_from_the_others_only_in_its_feedforward_layer(model):
    flags = require_model(model, ROOT / "configs")
    name = model.removeprefix("ffn_")
    gated = {"--gated-equal-parameters": ""} if FEEDFORWARDS[name]().is_gated else {}
    assert join_flag_values(flags) == {
        "--arch": "mechanism_transformer",
        "--attention": "softmax",
        "--feedforward": name,
        **gated,
        "--criterion": "fused_label_smoothed_cross_entropy",
    }


def test_loss_bleu_p_and_parameters_over_seeds(write, tmp_path):
    for seed in (1, 2):
        write("relu", seed, loss=4.5)
        write("aptx1", seed, loss=4.25 + seed / 4, wrong=range(5))
    write("mish")
    (table,) = render("activations", tmp_path)
    dataset = "multi30k_de_en_small"
    assert table.header == [
        "",
        f"best validation loss, {dataset}",
        f"BLEU tok, {dataset}",
        "p against relu",
        "difference over seeds",
        "p over seeds",
        "Dunnett's p",
        "seeds needed",
        f"parameters, {dataset}",
    ]
    parameters = row(table, "relu")[-1]
    assert parameters.replace(",", "").isdigit()
    assert row(table, "relu") == ["relu", "4.500 ± 0.000", "31.50 ± 0.71", "", "", "", "", "", parameters]
    name, loss, bleu, p, *_ = row(table, "aptx1")
    assert (name, loss, bleu) == ("aptx1", "4.625 ± 0.177", "31.50 ± 0.71")
    assert all(float(p_value) < 0.05 for p_value in re.fullmatch(r"seed 1: (\S+), seed 2: (\S+)", p).groups())
    assert row(table, "mish") == ["mish", "4.500", "31.00", "1.000", "", "", "", "", parameters]
    assert row(table, "swiglu") == ["swiglu", *[""] * 8]
    assert any(note.startswith("[AF] puts aptx1 above relu2") for note in table.notes)
    assert f"{dataset}: test and validation set, seeds 1, 2; fewer of ffn_mish" in table.notes
    assert not any("the paper's iwslt14" in note for note in table.notes)
