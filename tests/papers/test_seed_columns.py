"""The columns that compare rows with their baseline over seeds, from made-up runs."""

from relumt.papers.seed_statistics import dunnett_p_values
from tests.papers.cases import find_experiments, make_record, render, row, write_run, write_runs


def test_rows_with_several_seeds_are_compared_with_the_baseline_over_seeds(tmp_path):
    bleu = {
        "softmax": (30.0, 31.0, 32.0),
        "reluformer": (30.5, 31.0, 33.0),
        "rela_g": (29.0, 30.5),
        "entmax15": (31.0,),
    }
    write_runs("reluformer_table4", tmp_path, bleu, wrong=lambda _, seed: {seed})
    (table,) = render("reluformer_table4", tmp_path)
    assert table.header[-3:] == ["difference over seeds", "p over seeds", "Dunnett's p"]
    dunnett = [f"{p:.3f}" for p in dunnett_p_values([bleu["reluformer"], bleu["rela_g"]], bleu["softmax"])]
    assert row(table, "reluformer")[-3:] == ["+0.50 (-0.74 to +1.74)", "1.000", dunnett[0]]  # d: 0.5, 0, 1
    assert row(table, "rela")[-3:] == ["-0.75 (-3.93 to +2.43)", "1.000", dunnett[1]]  # d: -1, -0.5
    assert row(table, "transformer")[-3:] == row(table, "entmax15")[-3:] == [""] * 3
    assert any("exact two-sided sign-flip test" in note for note in table.notes)


def test_a_note_names_the_seeds_of_comparisons_that_leave_out_some(tmp_path):
    experiments = find_experiments("reluformer_table4")
    seeds = {"softmax": (1, 2, 3), "reluformer": (1, 2, 3), "rela_g": (1, 3, 4), "entmax15": (1,)}
    for model, found in seeds.items():
        for seed in found:
            write_run(experiments[model], tmp_path, make_record(experiments[model], seed, 30.0 + seed))
    (table,) = render("reluformer_table4", tmp_path)
    (note,) = (note for note in table.notes if note.startswith("compared only"))
    assert note == "compared only rela with transformer over seeds 1, 3 (BLEU tok, multi30k_de_en_small)"
    write_run(experiments["rela_g"], tmp_path, make_record(experiments["rela_g"], 2))
    for model in ("softmax", "reluformer"):
        write_run(experiments[model], tmp_path, make_record(experiments[model], seed=4))
    assert not any("compared only" in note for note in render("reluformer_table4", tmp_path)[0].notes)


def test_dunnetts_test_pools_the_rows_of_one_baseline(tmp_path):
    own, ablated, fairseq, fairseq_ablated = [30.0, 31.0], [28.0, 29.5], [33.0, 35.0], [34.0, 35.5]
    names = ("reluformer", "relu_unscaled", "fairseq-init/reluformer", "fairseq-init/relu_unscaled")
    bleu = dict(zip(names, (own, ablated, fairseq, fairseq_ablated), strict=True))
    write_runs("reluformer_table5", tmp_path, bleu)
    (table,) = render("reluformer_table5", tmp_path)
    column, suffix = table.header.index("Dunnett's p"), ", fairseq's initialization"
    labels = ("- scale factor", f"reluformer{suffix}", f"- scale factor{suffix}")
    expected = dunnett_p_values([ablated, fairseq], own) + dunnett_p_values([fairseq_ablated], fairseq)
    assert [row(table, label)[column] for label in labels] == [f"{p:.3f}" for p in expected]
