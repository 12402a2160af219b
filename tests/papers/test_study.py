"""The tables of the study, from made-up runs."""

import pytest
from scipy.stats import ttest_ind

from relumt.papers import get_table
from relumt.runs.evaluation_record import LengthPenaltyChoice, Score
from tests.papers.cases import make_record, render, row, write_run, write_translations
from tests.runs.cases import with_value

DETAIL = "BLEU = 30.00 60.0/36.0/24.0/16.0 (BP = 0.916 ratio = 0.919 hyp_len = 11000 ref_len = 11969)"


def find_experiments(name, preset="small"):
    return {(one.model, one.variant): one for one in get_table(name).experiments(preset)}


def study_record(experiment, seed, bleu, loss, lenpen="1.4"):
    record = with_value(make_record(experiment, seed, bleu), "training.best_valid_loss", loss)
    scores = record.test_evaluation.scores
    signature = scores["bleu_tokenized"].signature
    scores |= {"bleu_tokenized": Score(bleu, signature, DETAIL)}
    record = with_value(record, "evaluations.test.scores", scores)
    choice = LengthPenaltyChoice("valid", "0" * 64, signature, {"1.0": bleu - 1, lenpen: bleu + 1}, lenpen)
    record = with_value(record, "evaluations.test.setup.length_penalty", choice)
    return with_value(record, "evaluations.test.setup.flags.--lenpen", lenpen)


def test_models_are_compared_with_softmax_over_seeds_by_loss_and_by_bleu(tmp_path):
    experiments = find_experiments("study")
    for seed in (1, 2, 3):
        for model, bleu, loss in (("softmax", 38.0 + seed, 2.5), ("softpick", 39.0 + seed, 2.5 - seed / 100)):
            record = study_record(experiments[model, ""], seed, bleu, loss)
            write_translations(write_run(experiments[model, ""], tmp_path, record), record, set())
    (table,) = render("study", tmp_path)
    over_seeds = ["difference over seeds", "p over seeds", "Dunnett's p"]
    measures = ["best validation loss", "validation BLEU", "BLEU tok", "brevity penalty", "length penalty"]
    loss, validation, test, *penalties = (f"{measure}, multi30k_de_en_study" for measure in measures)
    compared = ["", loss, *over_seeds, validation, *over_seeds, test, "p against softmax", *over_seeds]
    assert table.header == [*compared, *penalties]
    cells = row(table, "softpick")
    assert cells[1:4] == ["2.480 ± 0.010", "-0.020 (-0.045 to +0.005)", "0.250"]
    assert cells[5] == "42.00 ± 1.00" and cells[6].startswith("+1.00 (") and cells[7] == "0.250"
    assert cells[9] == "41.00 ± 1.00" and cells[11].startswith("+1.00 (") and cells[12] == "0.250"
    # With one row, Dunnett's test is the t-test of two samples; scipy integrates at random points.
    losses, bleu = ttest_ind([2.49, 2.48, 2.47], [2.5] * 3), ttest_ind([40.0, 41.0, 42.0], [39.0, 40.0, 41.0])
    expected = [losses.pvalue, bleu.pvalue, bleu.pvalue]
    assert [float(cells[i]) for i in (4, 8, 13)] == pytest.approx(expected, abs=1e-3)
    assert cells[14:] == ["0.916 ± 0.000", "1.4 ± 0.0"]
    assert "multi30k_de_en_study: test and validation set, seeds 1, 2, 3" in table.notes


def test_a_score_without_details_has_no_brevity_penalty_and_a_translation_without_lenpen_has_1(tmp_path):
    write_run(find_experiments("study")["softmax", ""], tmp_path)
    (table,) = render("study", tmp_path)
    assert row(table, "softmax")[2] == "" and row(table, "softmax")[-2:] == ["", "1.0"]
