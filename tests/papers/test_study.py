"""The search by validation loss and the tables of the study, from made-up runs."""

from dataclasses import replace

import pytest
from scipy.stats import ttest_ind

from relumt.papers import get_table, study
from relumt.papers.experiments import PRESETS
from relumt.runs.evaluation_record import LengthPenaltyChoice, Score
from relumt.runs.record import Divergence
from tests.papers.cases import make_record, render, row, write_run, write_translations
from tests.runs.cases import with_value

DETAIL = "BLEU = 30.00 60.0/36.0/24.0/16.0 (BP = 0.916 ratio = 0.919 hyp_len = 11000 ref_len = 11969)"


def find_experiments(name, preset="small"):
    return {(one.model, one.variant): one for one in get_table(name).experiments(preset)}


def trained_record(experiment, loss, seed=1):
    record = replace(make_record(experiment, seed), evaluations={})
    return with_value(record, "training.best_valid_loss", loss)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_search_gives_every_model_the_same_settings_and_translates_no_test_set(preset):
    experiments = get_table("study_search").experiments(preset)
    settings = {}
    for one in experiments:
        assert not one.needs_test and not one.needs_analysis
        settings.setdefault(one.model, []).append(one.flags)
    assert list(settings) == [*study.MODELS, *study.CANDIDATES]
    assert all(found == list(study.SEARCH_FLAGS[preset]) for found in settings.values())
    assert [one.variant for one in experiments[: len(settings)]] == [""] * len(settings)
    assert len({(one.model, one.variant) for one in experiments}) == len(experiments)


def test_the_lowest_loss_of_each_model_is_marked(tmp_path):
    experiments = find_experiments("study_search")
    losses = {
        ("softmax", ""): 4.5,
        ("softmax", "lr-4e-3"): 4.75,
        ("softmax", "attention-dropout-0.1"): 4.25,
        ("reluformer", "lr-1e-3"): 4.125,
    }
    for key, loss in losses.items():
        write_run(experiments[key], tmp_path, trained_record(experiments[key], loss))
    diverged = experiments["reluformer", ""]
    record = replace(make_record(diverged), divergence=Divergence(7, "inf"), training=None, evaluations={})
    write_run(diverged, tmp_path, record)
    unfinished = experiments["reluformer", "lr-4e-3"]
    write_run(unfinished, tmp_path, replace(make_record(unfinished), training=None, evaluations={}))
    (table,) = render("study_search", tmp_path)
    assert table.header == ["", "the dataset's settings", "--lr 1e-3", "--lr 4e-3", "--attention-dropout 0.1"]
    assert row(table, "softmax") == ["softmax", "4.500", "", "4.750", "4.250 *"]
    assert row(table, "reluformer") == ["reluformer", "-", "4.125 *", "", ""]
    assert row(table, "sigmoid") == ["sigmoid", "", "", "", ""]
    assert any(note.startswith("multi30k_de_en_small: validation set, seeds 1") for note in table.notes)
    assert not any("test set" in note for note in table.notes)


def test_the_lowest_loss_is_that_over_the_seeds_of_all_settings(tmp_path):
    experiments = find_experiments("study_search")
    own, other = experiments["softmax", ""], experiments["softmax", "lr-4e-3"]
    for seed, loss in ((1, 4.5), (2, 4.625), (3, 4.625)):
        write_run(own, tmp_path, trained_record(own, loss, seed))
    write_run(other, tmp_path, trained_record(other, 4.53, seed=1))
    (table,) = render("study_search", tmp_path)
    assert row(table, "softmax") == ["softmax", "4.583 ± 0.072 *", "", "4.530", ""]
    assert any("over the seeds of all settings" in note for note in table.notes)
    reluformer = {("", 1): 4.5, ("lr-1e-3", 2): 4.25}
    for (variant, seed), loss in reluformer.items():
        experiment = experiments["reluformer", variant]
        write_run(experiment, tmp_path, trained_record(experiment, loss, seed))
    (table,) = render("study_search", tmp_path)
    assert row(table, "reluformer") == ["reluformer", "4.500", "4.250", "", ""]


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
    assert table.notes[0] == "settings chosen by validation loss: none, all models have the dataset's"


def test_a_score_without_details_has_no_brevity_penalty_and_a_translation_without_lenpen_has_1(tmp_path):
    write_run(find_experiments("study")["softmax", ""], tmp_path)
    (table,) = render("study", tmp_path)
    assert row(table, "softmax")[2] == "" and row(table, "softmax")[-2:] == ["", "1.0"]


def test_scores_on_a_part_of_iwslt14_are_labeled(tmp_path):
    for preset, is_labeled in (("small", True), ("paper", False)):
        write_run(find_experiments("study_iwslt14", preset)["softmax", ""], tmp_path)
        (table,) = render("study_iwslt14", tmp_path, preset)
        assert any(note.startswith("30% of the training data") for note in table.notes) == is_labeled
