"""`relumt run --evaluate`: what is translated, scored, refused and recorded."""

from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.files import load_text
from relumt.installation import Revision
from relumt.runs.environment import versions
from relumt.runs.evaluation_record import ExternalScore
from relumt.runs.record import load_record, save_record
from relumt.runs.scores import load_scored_lines
from tests.attacks.attack import snapshot
from tests.runs.cases import (
    NBEST,
    Step,
    with_value,
    write_checkpoint,
    write_dataset,
    write_output,
    write_prepared,
)

DATA = Path("data-bin/small")
CHECKPOINTS = Path("runs/small/stock/1/checkpoints")


@pytest.fixture
def evaluated(run, config, fairseq):
    """A run that is trained and scored; its configuration."""
    write_prepared(DATA, test="a b c d e\n", valid="a b c d\n")
    run("train")
    assert "tok:none" in run("evaluate")
    return config


def test_evaluation_is_not_repeated(run, fairseq, evaluated):
    command = fairseq.started[1]
    assert (command.tool, command.append) == ("generate", False)
    assert command.value("--path") == str(CHECKPOINTS / "checkpoint_best.pt") and command.arguments[-1] == "--cpu"
    assert command.value("--results-path") == str(evaluated.folder) and command.value("--lenpen") is None
    evaluation = load_record(evaluated.folder).test_evaluation
    assert evaluation.sentences == 1 and 0 < evaluation.scores["bleu_tokenized"].score < 100
    for names in evaluation.scored_files.values():
        assert [(evaluated.folder / name).read_text() for name in names] == ["a b c d f\n", "a b c d e\n"]
    assert "test evaluated already" in run("evaluate")
    assert len(fairseq.started) == 2


CHANGES = {
    "flags": lambda _: ["--lenpen", "2"],
    "checkpoint": lambda _: write_checkpoint(CHECKPOINTS.parent, updates=7),
    "data": lambda _: (DATA / "test.de-en.de.idx").write_bytes(b"others"),
    "hypotheses": lambda _: (CHECKPOINTS.parent / "test.hyp").write_text("x\n"),
    "sacrebleu": lambda patch: patch("relumt.runs.environment.versions", lambda: versions() | {"sacrebleu": "0.0"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_evaluation_is_repeated_if_scores_could_change(run, fairseq, evaluated, monkeypatch, change):
    found = CHANGES[change](monkeypatch.setattr)
    flags = found if isinstance(found, list) else []
    run("evaluate", *flags)
    assert len(fairseq.started) == 3
    assert "evaluated already" in run("evaluate", *flags)


@pytest.mark.parametrize(("output", "is_kept"), [(write_output(), True), (write_output(["a b c"]), False)])
def test_scores_of_other_programs_stay_with_the_translations_they_belong_to(run, fairseq, evaluated, output, is_kept):
    record = load_record(evaluated.folder)
    added = ExternalScore(0.5, "command", "comet 1", "test.comet.scores", "s", "t")
    save_record(evaluated.folder, with_value(record, "evaluations.test.external", {"comet": added}))
    fairseq.steps = [Step(output=output)]
    printed = run("evaluate", "--lenpen", "2")
    assert load_record(evaluated.folder).external_scores == ({"comet": added} if is_kept else {})
    assert ("comet of the earlier translation of test dropped; score again" in printed) is not is_kept


def test_another_environment_is_refused_or_recorded_once(run, fairseq, evaluated, configs, monkeypatch):
    write_dataset(configs, "small", length_penalties=[0.6, 1.0])
    monkeypatch.setattr("relumt.runs.environment.revision", lambda: Revision(code="f" * 40))
    before = snapshot(evaluated.folder)
    assert f"revision code none (now {'f' * 40})" in run("evaluate", status=2)
    assert snapshot(evaluated.folder) == before
    fairseq.steps = [Step(output=NBEST)]
    run("evaluate", options=["--force"])
    (change,) = load_record(evaluated.folder).accepted_changes
    assert change.differences == [f"revision code none (now {'f' * 40})"]
    assert "evaluated already" in run("evaluate")


REFUSED = {
    "--gen-subset nope": "the data-bin has no subset 'nope'",
    "--bf16": "--bf16 works with relumt's architectures, found --arch transformer",
    "--cpu-bf16": "--cpu-bf16 is set by the scripts",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_impossible_evaluations_are_refused(run, fairseq, evaluated, flags):
    before = snapshot(evaluated.folder)
    assert REFUSED[flags] in run("evaluate", *flags.split(), status=2)
    assert len(fairseq.started) == 2 and snapshot(evaluated.folder) == before


def test_data_of_another_vocabulary_is_refused(run, config):
    run("train")
    (DATA / "dict.en.txt").write_text("x 1\n")
    message = "direction (de-en) is not that of the run's training; set DATA_BIN"
    assert message in run("evaluate", options=["--force"], status=2)


def test_scores_outlive_their_checkpoints(run, fairseq, evaluated):
    (CHECKPOINTS / "checkpoint_best.pt").unlink()
    before = load_record(evaluated.folder)
    assert "evaluated already, and its checkpoints were deleted" in run("evaluate")
    assert "trained already" in run("train")
    assert "no checkpoint" in run("evaluate", "--beam", "1", status=2)
    assert load_record(evaluated.folder) == before and len(fairseq.started) == 2


@pytest.mark.parametrize(
    ("step", "status", "message"),
    [
        (Step("CUDA out of memory\n", status=1), 1, "fairseq-generate failed (CUDA out of memory); see the end of"),
        (Step("error: --beam\n", status=2), 2, "fairseq-generate failed (error: --beam); see the end of"),
        (Step(output=write_output().partition("Generate")[0]), 2, "generate-test.txt is truncated"),
    ],
)
def test_scores_are_kept_if_their_replacement_fails(run, fairseq, evaluated, step, status, message):
    before = load_record(evaluated.folder)
    fairseq.steps = [step]
    assert message in run("evaluate", "--beam", "1", status=status)
    assert load_record(evaluated.folder) == before and (evaluated.folder / "test.hyp").is_file()
    assert (evaluated.folder / "generate-test.txt").exists() == bool(not step.status)
    assert "test evaluated already" in run("evaluate")


def test_scores_are_dropped_before_their_translations_are_overwritten(run, evaluated, monkeypatch):
    monkeypatch.setattr("relumt.runs.evaluation.write_lines", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("evaluate", "--beam", "1")
    assert load_record(evaluated.folder).evaluations == {}


def test_only_the_files_that_were_scored_are_read(evaluated):
    evaluation = load_record(evaluated.folder).test_evaluation
    hypotheses = evaluated.folder / "test.hyp.tok"
    assert load_scored_lines(evaluated.folder, evaluation, "bleu_tokenized")[0] == load_text(hypotheses)
    hypotheses.write_text("x y z\n")
    with pytest.raises(UserError, match=r"test\.hyp\.tok: is not the file that was scored; translate again"):
        load_scored_lines(evaluated.folder, evaluation, "bleu_tokenized")


def test_the_average_of_the_last_checkpoints_translates(run, fairseq, config, configs):
    run("train")
    write_dataset(configs, "small", average_checkpoints=2)
    run("train", options=["--force"])
    assert "expected at least 2 numbered checkpoints to average, found 0" in run("evaluate", status=2)
    numbered = [write_checkpoint(config.folder, f"checkpoint_{n}_{5 * n}.pt", 5 * n) for n in (1, 2)]
    run("evaluate")
    assert fairseq.started[-1].value("--path") == str(CHECKPOINTS / "checkpoint_average_2.pt")
    numbered.append(write_checkpoint(config.folder, "checkpoint_3_15.pt", 15))
    count = len(fairseq.started)
    run("evaluate")
    assert len(fairseq.started) == count + 1
    for path in numbered:
        path.unlink()
    assert "test evaluated already" in run("evaluate")
