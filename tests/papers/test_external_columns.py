"""Columns and tests of scores by other programs."""

from dataclasses import replace

import numpy as np
import pytest

from relumt.errors import UserError
from relumt.papers.overview import overview_tables
from relumt.papers.rendering import to_markdown
from relumt.runs.record import load_record, save_record
from tests.papers.cases import add_external_score, analysis, find_experiments, make_record, render, row, write_run
from tests.runs.cases import with_value

SCORES = np.random.default_rng(1).normal(0.8, 0.1, 200).round(6)
NOISE = np.random.default_rng(2).normal(0, 0.1, 200).round(6)


def score_runs(tmp_path, scores_by_run):
    """Write runs of table 4 with external scores, given (model, seed) -> scores."""
    experiments = find_experiments("reluformer_table4")
    for (model, seed), scores in scores_by_run.items():
        folder = write_run(experiments[model], tmp_path, make_record(experiments[model], seed))
        if scores is not None:
            add_external_score(folder, list(scores))


def test_a_table_of_bleu_shows_the_scores_of_other_programs_with_a_paired_test(tmp_path):
    score_runs(
        tmp_path,
        {
            ("softmax", 1): SCORES,
            ("softmax", 2): SCORES + 0.01,
            ("sparsemax", 1): SCORES - 0.05,
            ("reluformer", 1): SCORES,
            ("reluformer", 2): SCORES + 0.1 * (NOISE - NOISE.mean()),
            ("rela_g", 1): None,
        },
    )
    (table,) = render("reluformer_table4", tmp_path)
    first = table.header.index("comet, multi30k_de_en_small")
    assert table.header[first + 1 : first + 3] == ["p against transformer", "difference over seeds"]
    mean = SCORES.mean()
    assert row(table, "transformer")[first : first + 2] == [f"{mean + 0.005:.4f} ± 0.0071", ""]
    assert row(table, "sparsemax")[first] == f"{mean - 0.05:.4f}"
    assert row(table, "sparsemax")[first + 1] == "<0.001"
    equal, worse = row(table, "reluformer")[first + 1].split(", ")
    assert equal == "seed 1: 1.000" and worse == "seed 2: <0.001"
    assert row(table, "rela")[first : first + 2] == ["", ""]
    assert "comet, multi30k_de_en_small: `comet 1`" in table.notes


def test_a_table_without_bleu_does_not_show_them(tmp_path):
    experiment = find_experiments("reluformer_table3")["softmax"]
    add_external_score(write_run(experiment, tmp_path, analysis=analysis()), [0.5, 0.6])
    (table,) = render("reluformer_table3", tmp_path)
    assert not [title for title in table.header if "comet" in title]


def test_the_overview_has_a_column_with_the_version_below(tmp_path):
    score_runs(tmp_path, {("softmax", 1): [0.5, 0.6], ("softmax", 2): [0.7, 0.6], ("reluformer", 1): None})
    text = to_markdown(overview_tables(tmp_path, None)[0])
    assert "| chrF | comet | tokens/s |" in text and "| 0.6000 ± 0.0707 | 1,000 ± 0 |" in text
    assert "| 30.00 |  | 1,000 |" in text and "- comet: `comet 1`" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text("0.5\n"), "is not the file that run.json describes; score it again"),
        (lambda path: path.unlink(), "test.comet.scores: no such file"),
        (lambda path: add_external_score(path.parent, [0.5]), "have different references; evaluate both again"),
    ],
)
def test_segment_scores_that_changed_are_refused(tmp_path, change, message):
    score_runs(tmp_path, {("softmax", 1): SCORES, ("reluformer", 1): SCORES})
    folder = find_experiments("reluformer_table4")["reluformer"].folder(tmp_path, 1)
    change(folder / load_record(folder).external_scores["comet"].segments)
    with pytest.raises(UserError, match=message):
        render("reluformer_table4", tmp_path)


def test_versions_of_a_metric_have_columns_of_their_own(tmp_path):
    experiments = find_experiments("reluformer_table4")
    score_runs(tmp_path, {("softmax", 1): SCORES, ("reluformer", 1): None, ("rela_g", 1): SCORES + 0.01})
    add_external_score(experiments["reluformer"].folder(tmp_path, 1), list(SCORES - 0.1), version="comet 2")
    (table,), mean = render("reluformer_table4", tmp_path), SCORES.mean()
    first, second = (table.header.index(f"comet (comet {n}), multi30k_de_en_small") for n in (1, 2))
    assert [row(table, "transformer")[n] for n in (first, second)] == [f"{mean:.4f}", ""]
    assert [row(table, "reluformer")[n] for n in (first, second)] == ["", f"{mean - 0.1:.4f}"]
    assert row(table, "rela")[first + 1] and not row(table, "reluformer")[second + 1]  # p against transformer
    assert "comet (comet 2), multi30k_de_en_small: `comet 2`" in table.notes
    text = to_markdown(overview_tables(tmp_path, None)[0])
    assert "| comet (comet 1) | comet (comet 2) |" in text


def test_scores_on_other_sources_are_not_compared(tmp_path):
    score_runs(tmp_path, {("softmax", 1): SCORES, ("reluformer", 1): SCORES})
    experiments = find_experiments("reluformer_table4")
    first, second = (experiments[model].folder(tmp_path, 1) for model in ("softmax", "reluformer"))

    def change(folder, **values):
        changed = replace(load_record(folder).external_scores["comet"], **values)
        save_record(folder, with_value(load_record(folder), "evaluations.test.external", {"comet": changed}))

    change(first, sources_sha256="s")
    change(second, sources_sha256="other")
    for action in (lambda: render("reluformer_table4", tmp_path), lambda: overview_tables(tmp_path, None)):
        with pytest.raises(UserError, match=r"differ in the sources that comet read: (s and other|other and s)"):
            action()
