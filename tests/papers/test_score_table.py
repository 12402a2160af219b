"""Tables of scores, from made-up runs."""

from dataclasses import replace

from relumt.papers import get_table
from relumt.runs.record import Divergence
from tests.papers.cases import (
    analysis,
    attention_layer,
    find_experiments,
    make_record,
    render,
    row,
    write_run,
    write_runs,
)


def test_the_papers_number_our_mean_over_seeds_and_empty_cells(tmp_path, capsys):
    write_runs("reluformer_table4", tmp_path, {"softmax": (30.0, 32.0), "rela_g": (30.0,)})
    (table,) = render("reluformer_table4", tmp_path)
    assert table.header == ["", "[RF] IWSLT14 De-En BLEU", "BLEU tok, multi30k_de_en_small", "p against transformer"]
    assert row(table, "transformer") == ["transformer", "34.22", "31.00 ± 1.41", ""]
    assert row(table, "rela") == ["rela", "33.59", "30.00", ""]
    assert row(table, "reluformer") == ["reluformer", "34.56", "", ""]
    assert "multi30k_de_en_small: test set, seeds 1, 2; fewer of rela_g" in table.notes
    said = capsys.readouterr().err
    assert "no finished run in" in said and "multi30k_de_en_small/reluformer" in said
    assert "scripts/reproduce.sh reluformer_table4 --preset small" in said


def test_differences_are_shown_only_on_the_papers_own_corpus(tmp_path):
    for experiment in get_table("reluformer_table4").experiments("paper"):
        if experiment.model == "softmax":
            bleu = {"iwslt14_de_en": 34.0, "wmt14_en_de": 27.5}[experiment.dataset]
            write_run(experiment, tmp_path, make_record(experiment, bleu=bleu))
    (table,) = render("reluformer_table4", tmp_path, "paper")
    assert row(table, "transformer") == ["transformer", "34.22", "34.00", "-0.22", "", "27.21", "27.50", "+0.29", ""]


def test_entropy_is_shown_beside_bleu_and_a_diverged_run_is_a_dash(tmp_path):
    experiments = find_experiments("reluformer_table5")
    write_runs("reluformer_table5", tmp_path, {"reluformer": (30.0,)}, analysis())
    write_runs("reluformer_table5", tmp_path, {"relu_unregularized": (0.3,)})
    divergence = Divergence(7, "gradients are Nan/Inf")
    diverged = replace(make_record(experiments["relu_unscaled"]), divergence=divergence, training=None, evaluations={})
    write_run(experiments["relu_unscaled"], tmp_path, diverged)
    (table,) = render("reluformer_table5", tmp_path)
    assert row(table, "reluformer") == ["reluformer", "34.56", "30.00", "", "1.60", "1.50", "4.500", "1.87", "0.20"]
    assert row(table, "- scale factor")[1:] == ["", "-", "", "", "-", "-", "-", "-"]
    assert row(table, "- regularization loss")[1:] == ["33.19", "-", "", "0.08", "-", "-", "-", "-"]
    assert row(table, "- scale factor - regularization loss")[1:] == [""] * 8
    assert any(note.startswith("-: a seed diverged") for note in table.notes)


def test_ablations_from_fairseqs_initialization_are_tested_against_reluformer_from_it(tmp_path):
    """[RF] Table 5: the paper prints no initialization, so each row has both, with the paper's number beside both."""
    experiments = find_experiments("reluformer_table5")
    flags = ("--relu-initial-score", "0", "--relu-initial-gain", "1")
    assert all(one.flags == (flags if name.startswith("fairseq-init") else ()) for name, one in experiments.items())
    models = [prefix + model for model in ("reluformer", "relu_unregularized") for prefix in ("", "fairseq-init/")]
    bleu = dict.fromkeys(models, (30.0,))
    write_runs(
        "reluformer_table5", tmp_path, bleu, wrong=lambda name, _: set() if name == "reluformer" else {0, 1, 2, 3, 4}
    )
    (table,) = render("reluformer_table5", tmp_path)
    p = {label: row(table, label)[3] for label, *_ in table.rows}
    assert p["reluformer"] == p["- scale factor, fairseq's initialization"] == ""
    assert p["- regularization loss"] == "<0.001"
    assert p["reluformer, fairseq's initialization"] == "<0.001"  # against reluformer
    assert p["- regularization loss, fairseq's initialization"] == "1.000"
    assert row(table, "- regularization loss, fairseq's initialization")[1] == "33.19"


def test_a_head_without_an_entropy_is_left_out_of_the_mean(tmp_path):
    layers = {"encoder.0": attention_layer("encoder", entropy=(1.0, None)), "cross.0": attention_layer("cross")}
    write_runs("reluformer_table3", tmp_path, {"softmax": (30.0,)}, analysis(attention=layers))
    (table,) = render("reluformer_table3", tmp_path)
    assert row(table, "softmax")[2:] == ["1.25", "1.60", "0.20"]  # 4.00 of 2.5 rows


def test_an_attention_with_only_null_rows_has_entropy_0_and_no_entropy_of_other_rows(tmp_path):
    dead = {"encoder.0": attention_layer("encoder", entropy=(0.0, 0.0), null=(1.0, 1.0))}
    write_runs("reluformer_table3", tmp_path, {"softmax": (30.0,)}, analysis(attention=dead))
    alive = dead | {"cross.0": attention_layer("cross", entropy=(0.5, 0.5), null=(0.0, 0.5), num_queries=10)}
    write_runs("reluformer_table3", tmp_path, {"relu_unregularized": (30.0,)}, analysis(attention=alive))
    (table,) = render("reluformer_table3", tmp_path)
    assert row(table, "softmax")[2:] == ["0.00", "", "1.00"]
    assert row(table, "relu")[2:] == ["0.25", "0.67", "0.62"]  # 10 of 15 numbers; the dead layer has no row in it


def test_head_diversity_by_temperature_and_site(tmp_path):
    write_runs("rela_table6", tmp_path, {"rela_g": (30.0,)}, analysis())
    (table,) = render("rela_table6", tmp_path)
    assert row(table, "rela_g tau=0.25")[1:] == ["0.92", "0.70", "0.65", "0.70", "0.71", "0.70"]
    assert row(table, "softmax")[2] == ""


def test_alignment_errors_are_shown_beside_the_papers(tmp_path):
    write_runs("rela_table5", tmp_path, {"rela_g": (30.0,)}, analysis())
    (table,) = render("rela_table5", tmp_path)
    ours = ["64.46", "50.00", "61.64", "40.00", "59.24", "60.00", "52.41", "45.00"]
    assert row(table, "rela_g") == ["rela_g", *ours]
    assert "the paper analyzes English-German models of three seeds (--seeds 1 2 3)" in table.notes


def test_a_table_of_scores_does_not_read_analyses(tmp_path):
    folders = write_runs("reluformer_table2", tmp_path, {"softmax": (30.0,)})
    (folders["softmax"] / "analysis.json").write_text("{}")  # not an analysis
    (table,) = render("reluformer_table2", tmp_path)
    assert row(table, "softmax")[2] == "30.00"


def test_parameters_have_no_deviation_over_seeds_and_are_shown_of_diverged_runs(tmp_path):
    write_runs("activations", tmp_path, {"ffn_relu": (30.0, 30.0), "ffn_mish": (0.3,)})
    (table,) = render("activations", tmp_path)
    assert row(table, "relu") == ["relu", "4.500 ± 0.000", "30.00 ± 0.00", "", "2,340,000"]
    assert row(table, "mish") == ["mish", "-", "-", "", "2,340,000"]
