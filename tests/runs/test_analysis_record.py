"""analysis.json: what is written is read back, and anything else ends in one line."""

from dataclasses import replace

import pytest

from relumt.analysis.record import (
    SCHEMA,
    AlignmentErrors,
    AlignmentMetrics,
    AnalysisFile,
    LayerAlignment,
    read_analysis,
    write_analysis,
)
from relumt.analysis.scored_analysis import needs_analysis
from relumt.commands.analysis import analyze_run
from relumt.corpora.record import gold_alignments_path
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.record import load_record
from tests.papers.cases import analysis

ANALYSIS = AnalysisFile("test", [analysis()])


def test_alignment_errors_are_averaged_over_layers():
    layers = {
        "a": LayerAlignment(AlignmentErrors([40.0, 30.0], 50.0), AlignmentErrors([20.0, 30.0], 60.0)),
        "b": LayerAlignment(AlignmentErrors([10.0, 20.0], 70.0), AlignmentErrors([40.0, 30.0], 80.0)),
    }
    alignment = AlignmentMetrics(0, layers, {})
    assert (alignment.aoh("normal"), alignment.aol("normal")) == (20.0, 60.0)
    assert (alignment.aoh("shifted"), alignment.aol("shifted")) == (25.0, 70.0)


def test_an_analysis_is_read_as_it_was_written(tmp_path):
    write_analysis(ANALYSIS, tmp_path / "analysis.json")
    assert read_analysis(tmp_path / "analysis.json") == ANALYSIS


def test_another_format_ends_in_one_line(tmp_path):
    write_analysis(replace(ANALYSIS, schema=SCHEMA - 1), tmp_path / "analysis.json")
    message = f"^.*expected schema {SCHEMA}, found {SCHEMA - 1}; delete it and run relumt analyze again$"
    with pytest.raises(UserError, match=message):
        read_analysis(tmp_path / "analysis.json")


OUTDATED = {
    "up to date": ({}, False),
    "gold alignments from a pipe": ({"alignments_sha256": None}, False),
    "another checkpoint": ({"sha256": "other"}, True),
    "another test set": ({"data_sha256": "other"}, True),
    "other gold alignments": ({"alignments_sha256": "other"}, True),
    "no gold alignments": ({"alignments_sha256": ""}, True),
}


def test_only_an_analysis_of_what_was_scored_counts(run, config):
    run("train")
    assert needs_analysis(config)
    alignments = gold_alignments_path(config.data_bin.folder, "test")
    alignments.parent.mkdir()
    alignments.write_text("0-0\n")
    run("evaluate")
    scored = load_record(config.folder).test_evaluation.setup
    current = {"sha256": scored.checkpoint_sha256, "data_sha256": scored.data}
    current |= {"alignments_sha256": file_sha256(alignments)}
    path = config.folder / "analysis.json"
    for case, (changes, is_needed) in OUTDATED.items():
        write_analysis(AnalysisFile("test", [replace(ANALYSIS.checkpoints[0], **current | changes)]), path)
        assert needs_analysis(config) == is_needed, case
    write_analysis(AnalysisFile("test", [replace(ANALYSIS.checkpoints[0], **current)], schema=SCHEMA - 1), path)
    assert needs_analysis(config)


def test_the_data_bin_that_the_user_names_is_analyzed(config, monkeypatch):
    measured = []
    monkeypatch.setattr("relumt.analysis.scored_analysis.needs_analysis", lambda config: True)
    monkeypatch.setattr("relumt.commands.analysis.write_numbers", lambda *given: measured.append(given))
    for data_bin in (config.data_bin.folder, None):
        analyze_run(config, data_bin)
    assert [analyzed.data for _, _, analyzed in measured] == [config.data_bin.folder, None]
