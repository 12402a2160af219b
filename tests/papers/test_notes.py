"""Notes below tables of scores, from made-up runs: what the preset lacks, revisions and differences."""

import re

import pytest

from relumt.analysis.record import AlignmentErrors, AlignmentMetrics, FeedForwardMetrics, LayerAlignment
from relumt.errors import UserError
from relumt.git_revision import Revision
from relumt.papers import TABLES, get_table
from relumt.papers.context import list_differences
from relumt.papers.experiments import unique_experiments
from relumt.papers.measured import MeasuredTable
from relumt.papers.measures import ENVIRONMENTS_NOTE
from relumt.runs.environment import Kernels
from relumt.runs.evaluation_record import LengthPenaltyChoice
from relumt.runs.record import AcceptedChange, Initialization
from tests.papers.cases import analysis, make_record, render, write_run
from tests.runs.cases import scored_record, with_value


def test_a_preset_names_the_papers_corpora_that_it_lacks(tmp_path):
    """[RL] Table 3 has four language pairs; preset small has one corpus, beside which none of the four is shown."""
    write_run(get_table("rela_table3").experiments("small")[0], tmp_path)
    (table,) = render("rela_table3", tmp_path)
    assert table.header == ["", "BLEU detok, multi30k_de_en_small", "p against softmax"]
    corpora = "wmt14_en_fr, wmt18_en_fi, wmt18_zh_en, wmt16_ro_en"
    assert f"multi30k_de_en_small instead of the paper's {corpora} (1 instead of 4 corpora)" in table.notes


def test_a_table_names_the_length_penalties_that_were_chosen(tmp_path):
    for experiment, chosen in zip(get_table("reluformer_table2").experiments("small"), ("1.0", "1.4"), strict=False):
        bleu = {value: 31.0 if value == chosen else 30.0 for value in ("1.0", "1.4")}
        choice = LengthPenaltyChoice("valid", "v", "s", bleu, chosen)
        record = with_value(make_record(experiment), "evaluations.test.setup.length_penalty", choice)
        write_run(experiment, tmp_path, with_value(record, "evaluations.test.setup.flags", {"--lenpen": chosen}))
    (table,) = render("reluformer_table2", tmp_path)
    (note,) = (note for note in table.notes if "length penalty chosen" in note)
    assert "by BLEU on valid from 1.0 and 1.4: " in note and " 1.0; " in note and note.endswith(" 1.4")


def write_complete_run(experiment, runs):
    """Write a run whose analysis has everything that any table shows."""
    layer = LayerAlignment(AlignmentErrors([44.0, 40.0], 50.0), AlignmentErrors([45.0, 45.5], 60.0))
    complete = analysis(
        alignment=AlignmentMetrics(0, {"decoder.layers.0.encoder_attn": layer}),
        feedforward={"encoder.layers.0": FeedForwardMetrics(32, 100, 0.1, 0.0, {"0.2": 0.3, "50": 0.9}, 0.01)},
    )
    write_run(experiment, runs, analysis=complete)


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, table in TABLES.items()
        if name not in {"rela_table2", "rela_table4", "rela_figure2"} and not isinstance(table, MeasuredTable)
    ),
)
def test_a_table_of_scores_or_measures_names_the_revision_of_its_runs(tmp_path, name):
    """The tables left out have speeds, whose revision test_speeds.py tests, or need no runs."""
    for experiment in unique_experiments(get_table(name).experiments("small")):
        write_complete_run(experiment, tmp_path)
    (table, *_) = render(name, tmp_path)
    assert any("trained with revision c" in note for note in table.notes)


def test_the_revision_of_an_analysis_is_named_if_another_one_trained(tmp_path):
    (experiment, *_) = get_table("reluformer_table3").experiments("small")
    for versions, note in (
        ({"revision": "revision c"}, None),
        ({"revision": "revision d"}, "multi30k_de_en_small: analyzed with revision d"),
        ({}, "multi30k_de_en_small: analyzed with an unknown revision"),
    ):
        write_run(experiment, tmp_path, analysis=analysis(versions=versions))
        (table,) = render("reluformer_table3", tmp_path)
        assert [line for line in table.notes if "analyzed with" in line] == ([note] if note else [])


def test_the_revisions_of_training_and_of_translation_are_named(tmp_path):
    experiments = {experiment.model: experiment for experiment in get_table("reluformer_table4").experiments("small")}
    write_run(experiments["softmax"], tmp_path)
    other = with_value(
        make_record(experiments["rela_g"]), "provenance.environment.revision", Revision("1234567890", "c")
    )
    write_run(experiments["rela_g"], tmp_path, other)
    (table,) = render("reluformer_table4", tmp_path)
    assert "multi30k_de_en_small: trained with revision c, revision 1234567" in table.notes
    other = with_value(other, "evaluations.test.setup.environment.revision", Revision("abc", "c", "dirty"))
    write_run(experiments["rela_g"], tmp_path, other)
    (table,) = render("reluformer_table4", tmp_path)
    translated = "translated with revision c, revision abc with uncommitted changes"
    assert f"multi30k_de_en_small: trained with revision c, revision 1234567; {translated}" in table.notes
    installed = with_value(make_record(experiments["rela_g"]), "provenance.environment.revision", Revision())
    installed = with_value(installed, "provenance.environment.versions.relumt", "0.1.0")
    write_run(experiments["rela_g"], tmp_path, installed)
    (table,) = render("reluformer_table4", tmp_path)
    assert "multi30k_de_en_small: trained with revision c, relumt 0.1.0" in table.notes


def _difference(runs):
    (note,) = (note for note in render("reluformer_table4", runs)[0].notes if "the runs differ in" in note)
    return re.fullmatch(r"the runs differ in (.*) \(see run\.json\)", note)[1]


def test_other_kernels_are_noted_and_unknown_ones_are_not(tmp_path):
    first, second, third = get_table("reluformer_table4").experiments("small")[:3]
    for experiment in (first, second):
        record = with_value(make_record(experiment), "provenance.environment.kernels", Kernels("auto", None))
        write_run(experiment, tmp_path, record)
    write_run(third, tmp_path)
    assert not any("runs differ" in note for note in render("reluformer_table4", tmp_path)[0].notes)
    write_run(second, tmp_path, with_value(record, "provenance.environment.kernels", Kernels("auto", "3.7.1")))
    assert _difference(tmp_path) == "the kernels of attention"


def test_other_devices_and_precisions_are_refused_and_other_revisions_and_backends_noted(tmp_path):
    experiments = get_table("reluformer_table4").experiments("small")[:2]
    for experiment in experiments:
        write_run(experiment, tmp_path)
    other = with_value(make_record(experiments[1]), "provenance.environment.revision.code", "d")
    other = with_value(other, "provenance.environment.device.fp32_backend", "onednn")
    write_run(experiments[1], tmp_path, other)
    assert _difference(tmp_path) == "the code of relumt and the backend of fp32 products"
    for name, value in (("count", 8), ("precision", "bf16")):
        write_run(experiments[1], tmp_path, with_value(other, f"provenance.environment.device.{name}", value))
        with pytest.raises(UserError, match="differ in the number of devices or the precision of training"):
            render("reluformer_table4", tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "aspect"),
    [
        ("provenance.environment.versions", {"torch": "3"}, "versions of packages"),
        ("provenance.environment.device.name", "other", "the kind of device"),
        (
            "evaluations.test.setup.environment.versions",
            {"sacremoses": "0.0.53"},
            "versions of packages that scored them",
        ),
    ],
)
def test_differences_are_listed(path, value, aspect):
    assert list_differences([scored_record(), with_value(scored_record(), path, value)]) == [aspect]


def test_the_initial_dataset_and_changed_environments_are_named(tmp_path):
    experiment, *_ = get_table("reluformer_table3").experiments("small")
    record = with_value(make_record(experiment), "provenance.initialization", Initialization("first"))
    record = with_value(record, "accepted_changes", [AcceptedChange("2026-01-01T10:00:00+00:00", ["torch"])])
    write_run(experiment, tmp_path, record, analysis=analysis())
    (table,) = render("reluformer_table3", tmp_path)
    assert "multi30k_de_en_small: trained on first first" in table.notes
    assert f"{ENVIRONMENTS_NOTE}: {record.name}" in table.notes
