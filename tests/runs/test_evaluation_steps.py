"""The steps that translate a run's test set, score it and analyze it."""

import os
from dataclasses import replace

import pytest

from relumt.cli import main
from relumt.commands.run import measure_run
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.git_revision import Revision
from relumt.runs.analysis_record import SCHEMA, AnalysisFile, CheckpointAnalysis, write_analysis
from relumt.runs.data_bin import gold_alignments_path
from relumt.runs.environment import versions
from relumt.runs.evaluation_check import check_evaluation
from relumt.runs.evaluation_steps import score_pending, start_evaluation, start_one_by_one
from relumt.runs.record import load_record
from relumt.runs.scored_analysis import needs_analysis
from relumt.runs.scored_files import load_scored_lines
from relumt.runs.training_steps import start_training
from relumt.text_files import load_text
from tests.runs.cases import (
    OUTPUT,
    reverse_data_bin,
    train,
    translate,
    write_checkpoint,
    write_dataset,
    write_prepared,
)


def test_other_flags_of_translation_start_another_evaluation(config, step):
    train(config, step)
    translate(config, step)
    assert "--lenpen" in step(start_evaluation, "--lenpen", "2").result.arguments


def test_evaluation_in_another_environment_is_refused_or_recorded(config, step, refused, monkeypatch):
    train(config, step)
    changed = Revision(code="f" * 40)
    monkeypatch.setattr("relumt.runs.environment.revision", lambda: changed)
    assert f"(now {'f' * 40})" in refused(start_evaluation)
    assert step(start_evaluation, settings=["--accept-mixed"]).result
    assert load_record(config.folder).environment_changes


@pytest.mark.parametrize(
    ("name", "changed", "is_repeated"),
    [
        ("revision", lambda: Revision(commit="another commit of the same code"), False),
        ("versions", lambda: versions() | {"python": "3.99"}, False),
        ("versions", lambda: versions() | {"sacrebleu": "0.0"}, True),
    ],
)
def test_evaluation_is_repeated_only_if_scores_could_change(config, step, monkeypatch, name, changed, is_repeated):
    train(config, step)
    translate(config, step)
    monkeypatch.setattr(f"relumt.runs.environment.{name}", changed)
    assert bool(step(start_evaluation).result) == is_repeated


def test_evaluation_is_repeated_if_the_data_bin_was_prepared_again_with_lowercase(config, step):
    """The text of a lowercase corpus stays the same, but its BLEU is to ignore case, like that of other runs."""
    write_prepared(config.data_bin.folder, test="a b c d e\n")
    train(config, step)
    translate(config, step)
    assert step(start_evaluation).result is None
    write_prepared(config.data_bin.folder, lowercased=True)
    assert step(start_evaluation).result
    translate(config, step)
    assert step(start_evaluation).result is None
    assert "case:lc" in load_record(config.folder).signature("bleu_tokenized")


def test_evaluation_with_another_vocabulary_is_refused(config, step, refused):
    train(config, step)
    (config.data_bin.folder / "dict.en.txt").write_text("x 1\n")
    assert "its vocabulary is not the one" in refused(start_evaluation)


def test_evaluation_in_the_opposite_direction_is_refused(config, step, refused):
    """Joint dictionaries are the same files in both directions."""
    train(config, step)
    reverse_data_bin(config.data_bin.folder)
    assert "translates en-de, but the run was trained on de-en; set DATA_BIN" in refused(start_evaluation)


def test_translation_uses_the_average_of_the_last_checkpoints(config, configs, step, refused):
    train(config, step)
    write_dataset(configs, "small", average_checkpoints=2)
    assert "expected at least 2 numbered checkpoints to average, found 0" in refused(start_evaluation)
    for epoch, updates in ((1, 5), (2, 10)):
        write_checkpoint(config, f"checkpoint_{epoch}_{updates}.pt", updates)
    averaged = config.checkpoints / "checkpoint_average_2.pt"
    assert str(averaged) in step(start_evaluation).result.arguments
    translate(config, step)
    assert "evaluated already" in step(start_evaluation).err
    before = averaged.stat().st_mtime_ns
    write_checkpoint(config, "checkpoint_3_15.pt", 15)
    step(start_evaluation)
    assert averaged.stat().st_mtime_ns > before


def test_one_by_one_translation_is_another_evaluation(config, step):
    train(config, step)
    translate(config, step)
    assert step(start_evaluation, settings=["--one-by-one"]).result
    assert "evaluated already" in step(start_evaluation).err


def test_one_by_one_translation_needs_documents_with_separators(config, step, refused):
    train(config, step)
    assert "there is no unscored translation" in refused(start_one_by_one)
    step(start_evaluation)
    assert "ONE_BY_ONE=1 needs a model trained with --document-separator" in refused(start_one_by_one)


def test_one_by_one_translation_is_refused_before_anything_is_translated(config, step, refused):
    train(config, step)
    message = refused(check_evaluation, settings=["--one-by-one"])
    assert "ONE_BY_ONE=1 needs a model trained with --document-separator" in message


def test_one_by_one_translation_is_refused_before_training(config, configs, capsys):
    folders = ["--runs", config.folder.parents[2], "--configs", configs, "--data-bin", config.data_bin.folder]
    with pytest.raises(SystemExit) as ended:
        main(["run", "--train", "--evaluate", "--one-by-one", *map(str, folders), "small", "stock"])
    assert ended.value.code == 2 and "unset ONE_BY_ONE" in capsys.readouterr().err
    assert not config.folder.exists()


def test_scored_translations_and_references_are_written(config, step):
    train(config, step)
    translate(config, step)
    scored = load_record(config.folder).test_evaluation.scored_files
    for names, reference in zip(scored.values(), ("a b c d e", "a b c d e"), strict=True):
        hypotheses, references = ((config.folder / name).read_text() for name in names)
        assert (hypotheses, references) == ("a b c d f\n", f"{reference}\n")


def make_analysis(checkpoint, data=None):
    found = CheckpointAnalysis("x", "x.pt", "data-bin", checkpoint, {}, "subwords", 1, 0, {}, None, {}, {}, data)
    return AnalysisFile("test", [found])


def test_hard_links_to_earlier_translations_keep_their_content(config, step):
    """`cp -al runs backup` links all files."""
    train(config, step)
    translate(config, step)
    backup = config.folder.with_name("backup")
    backup.mkdir()
    names = [name for names in load_record(config.folder).test_evaluation.scored_files.values() for name in names]
    for name in names:
        (config.folder / name).write_text("earlier\n")
        os.link(config.folder / name, backup / name)
    step(start_evaluation, "--lenpen", "2")
    (config.folder / "generate-test.txt").write_text(OUTPUT)
    step(score_pending)
    assert {(backup / name).read_text() for name in names} == {"earlier\n"}
    assert "earlier\n" not in {(config.folder / name).read_text() for name in names}


def test_other_files_in_place_of_those_that_were_scored(config, step):
    train(config, step)
    translate(config, step)
    evaluation = load_record(config.folder).test_evaluation
    hypotheses = config.folder / "test.hyp.tok"
    assert load_scored_lines(config.folder, evaluation, "bleu_tokenized")[0] == load_text(hypotheses)
    assert step(start_evaluation).result is None
    hypotheses.write_text("x y z\n")
    with pytest.raises(UserError, match=r"test\.hyp\.tok: is not the file that was scored; translate again"):
        load_scored_lines(config.folder, evaluation, "bleu_tokenized")
    assert step(start_evaluation).result is not None


def test_an_analysis_does_not_count_before_the_run_is_scored(config, step):
    train(config, step)
    write_analysis(make_analysis("sha"), config.folder / "analysis.json")
    assert step(needs_analysis).result is True


def test_the_data_bin_that_the_user_names_is_analyzed(config, monkeypatch):
    measured = []
    monkeypatch.setattr("relumt.commands.analyze.run", measured.append)
    measure_run(config.folder, config.data_bin.folder)
    measure_run(config.folder, None)
    assert [arguments.data for arguments in measured] == [config.data_bin.folder, None]


def test_only_an_analysis_of_the_scored_checkpoint_counts(config, step):
    train(config, step)
    translate(config, step)
    assert step(needs_analysis).result is True
    sha = load_record(config.folder).test_evaluation.setup.checkpoint_sha256
    for found, wanted in ((sha, False), ("other", True)):
        write_analysis(make_analysis(found), config.folder / "analysis.json")
        assert step(needs_analysis).result is wanted
    write_analysis(replace(make_analysis(sha), schema=SCHEMA - 1), config.folder / "analysis.json")
    assert step(needs_analysis).result is True


def test_only_an_analysis_of_the_scored_test_set_counts(config, step):
    train(config, step)
    translate(config, step)
    scored = load_record(config.folder).test_evaluation.setup
    for data, wanted in ((scored.data, False), (None, False), ("x", True), ("", True)):
        write_analysis(make_analysis(scored.checkpoint_sha256, data), config.folder / "analysis.json")
        assert step(needs_analysis).result is wanted


def test_only_an_analysis_with_the_present_gold_alignments_counts(config, step):
    train(config, step)
    translate(config, step)
    scored = load_record(config.folder).test_evaluation.setup
    path = gold_alignments_path(config.data_bin.folder, "test")
    path.parent.mkdir(exist_ok=True)
    path.write_text("0-0\n")
    for alignments, wanted in ((file_sha256(path), False), (None, False), ("x", True), ("", True)):
        (found,) = make_analysis(scored.checkpoint_sha256, scored.data).checkpoints
        found = replace(found, alignments_sha256=alignments)
        write_analysis(AnalysisFile("test", [found]), config.folder / "analysis.json")
        assert step(needs_analysis).result is wanted
    path.unlink()
    assert step(needs_analysis).result is False


def test_scores_outlive_their_checkpoints(config, step, refused):
    train(config, step)
    translate(config, step)
    (config.checkpoints / "checkpoint_best.pt").unlink()
    before = load_record(config.folder)
    assert "trained already" in step(start_training).err
    assert "evaluated already, and its checkpoints were deleted" in step(start_evaluation).err
    assert "no checkpoint" in refused(start_evaluation, "--beam", "1")
    assert load_record(config.folder) == before and (config.folder / "train.log").is_file()


def test_another_test_set_under_the_same_vocabulary_is_translated(config, step):
    train(config, step)
    translate(config, step)
    (config.data_bin.folder / "test.de-en.de.idx").write_bytes(b"others")
    assert step(start_evaluation).result


def test_scores_are_dropped_before_their_translations_are_overwritten(config, step, monkeypatch):
    train(config, step)
    translate(config, step)
    step(start_evaluation, "--beam", "1")
    assert not (config.folder / "generate-test.txt").exists()  # so that a failure leaves nothing to score
    (config.folder / "generate-test.txt").write_text(OUTPUT)
    monkeypatch.setattr("relumt.runs.evaluation_results.write_lines", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(score_pending)
    assert load_record(config.folder).evaluations == {}
    assert step(start_evaluation).result


def test_scores_are_kept_if_their_replacement_is_incomplete(config, step, refused):
    train(config, step)
    translate(config, step)
    step(start_evaluation, "--beam", "1")
    (config.folder / "generate-test.txt").write_text("")
    assert "generate-test.txt" in refused(score_pending)
    assert load_record(config.folder).is_scored and (config.folder / "test.hyp").is_file()


def test_a_subset_without_a_name_is_refused(config, step, refused):
    train(config, step)
    assert "--gen-subset needs one value" in refused(start_evaluation, "--gen-subset")
