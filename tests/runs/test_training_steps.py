"""The steps that train a run, and what they record; a run that is evaluated or diverged is not trained again."""

import pickle
import shutil

import pytest
import torch

from relumt.runs import flag_checks
from relumt.runs.evaluation_steps import score_pending, start_evaluation
from relumt.runs.provenance import measures_other_loss, training_provenance
from relumt.runs.record import Divergence, load_record
from relumt.runs.scored_analysis import needs_analysis
from relumt.runs.training_results import finish_training, record_divergence
from relumt.runs.training_steps import check_training, start_training
from tests.runs.cases import CPU, LOG, train, translate, write_checkpoint


def test_training_and_evaluation_are_not_repeated(config, step):
    command = step(start_training, "--lr", "1e-3").result
    assert command.log == config.folder / "train.log" and command.arguments[0] == str(config.data_bin.folder)
    assert command.arguments[-1] == "--cpu" and "--lr" in command.arguments
    train(config, step)
    assert load_record(config.folder).training.parameters == 1000
    outcome = step(start_training)
    assert outcome.result is None and "trained already" in outcome.err
    command = step(start_evaluation).result
    assert command.log == config.folder / "generate-test.log"
    assert str(config.checkpoints / "checkpoint_best.pt") in command.arguments
    assert "tok:none" in translate(config, step).err
    evaluation = load_record(config.folder).test_evaluation
    assert evaluation.sentences == 1 and 0 < evaluation.scores["bleu_tokenized"].score < 100
    assert (config.folder / "test.hyp").read_text() == (config.folder / "test.hyp.tok").read_text() == "a b c d f\n"
    outcome = step(start_evaluation)
    assert outcome.result is None and "evaluated already" in outcome.err


def test_other_flags_of_training_are_refused_or_recorded(config, step, refused):
    train(config, step)
    before = (config.folder / "run.json").read_text()
    assert "--max-epoch 2 (now --max-epoch 9)" in refused(start_training, "--max-epoch", "9")
    assert (config.folder / "run.json").read_text() == before
    assert step(start_training, "--max-epoch", "9", settings=["--accept-mixed"]).result
    assert load_record(config.folder).environment_changes[0].differences == ["--max-epoch 2 (now --max-epoch 9)"]


def test_an_unknown_setting_of_kernels_is_refused_before_anything_is_written(config, refused, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fast")
    assert "RELUMT_KERNELS is 'fast'; it must be one of auto" in refused(start_training)
    assert not config.folder.exists()


@pytest.mark.parametrize(("flag", "package"), [("--wandb-project", "wandb"), ("--aim-repo", "aim")])
def test_a_tracker_that_is_not_installed_is_refused(config, refused, monkeypatch, flag, package):
    monkeypatch.setattr(flag_checks, "find_spec", lambda _: None)
    assert f"{flag} needs {package}; pip install {package}" in refused(check_training, flag, "mine")
    assert not config.folder.exists()


def test_a_signal_while_flags_are_checked_is_no_error_in_them(monkeypatch):
    def end(_):
        raise SystemExit(128 + 15)

    monkeypatch.setattr(flag_checks, "_try_out", end)
    with pytest.raises(SystemExit) as ended:
        flag_checks._attempt("fairseq-train", lambda: flag_checks._try_out(None))
    assert ended.value.code == 143


def test_a_checkpoint_that_contains_code_is_refused(config, step, refused):
    train(config, step)
    torch.save({"model": {}, "code": print}, config.checkpoints / "checkpoint_best.pt", pickle_module=pickle)
    assert "contains code" in refused(start_evaluation)


def test_steps_out_of_order_are_refused(config, step, refused):
    assert "training is not finished" in refused(start_evaluation)
    assert "no run.json" in refused(finish_training)
    train(config, step)
    assert "run scripts/evaluate.sh" in refused(score_pending)
    (config.checkpoints / "checkpoint_best.pt").unlink()
    assert "no checkpoint" in refused(start_evaluation)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--seed", "one"], "SEED is 'one'"),
        (["--precision", "fp8"], "PRECISION is 'fp8'"),
        (["--precision", "fp16"], "needs a GPU"),
    ],
)
def test_invalid_settings_are_refused(refused, settings, message):
    assert message in refused(start_training, settings=settings)


DIVERGED = """\
2026-01-01 10:00:05 | INFO | train_inner | {"epoch": 1, "update": 0.4, "loss": "9", "num_updates": "20", "wall": "4"}
Traceback (most recent call last):
FloatingPointError: gradients are Nan/Inf

During handling of the above exception, another exception occurred:

StopIteration
"""


def continue_with(step, config, *flags):
    """Return the command of a training that continues with other flags."""
    return step(start_training, *flags, settings=["--accept-mixed"]).result.arguments


def test_losses_before_a_change_of_what_they_measure_do_not_count(config, step):
    step(start_training)
    write_checkpoint(config, "checkpoint_last.pt", updates=6)
    (config.folder / "train.log").write_text(LOG)
    assert "--reset-meters" not in continue_with(step, config, "--max-epoch", "9")
    for _ in range(2):  # the first start is killed before it saves a checkpoint
        assert "--reset-meters" in continue_with(step, config, "--max-epoch", "9", "--max-target-positions", "9")
    write_checkpoint(config, "checkpoint_last.pt", updates=12)
    assert "--reset-meters" not in continue_with(step, config, "--max-epoch", "9", "--max-target-positions", "9")
    valid = '2026-01-01 12:00:20 | INFO | valid | {"epoch": 2, "valid_loss": "8.9", "valid_num_updates": "12"}\n'
    earlier = valid.replace("8.9", "1.0").replace('12"}', '7"}')  # killed before it saved a checkpoint
    (config.folder / "train.log").write_text(f"{LOG}{earlier}$ fairseq-train data --reset-meters\n{valid}")
    step(finish_training)
    assert load_record(config.folder).training.best_valid_loss == 8.9


@pytest.mark.parametrize("flag", ["--sentence-avg True", "--max-tokens 9", "--best-checkpoint-metric nll_loss"])
def test_flags_that_decide_what_validation_losses_measure(flag, config):
    name, value = flag.split()
    recorded = training_provenance({"--lr": ["1"]}, config.data_bin, CPU)
    assert not measures_other_loss(recorded, training_provenance({"--lr": ["2"]}, config.data_bin, CPU))
    assert measures_other_loss(recorded, training_provenance({name: [value]}, config.data_bin, CPU))


def test_a_log_that_ends_early_is_completed_from_the_last_checkpoint(config, step):
    step(start_training)
    write_checkpoint(config, "checkpoint_last.pt", updates=80)
    (config.folder / "train.log").write_text(LOG.replace("8.5", "9.5"))
    assert "train.log ends at update 6; checkpoint_last.pt says how training ended" in step(finish_training).err
    summary = load_record(config.folder).training
    assert (summary.updates, summary.epochs, summary.best_valid_loss) == (80, 1, 8.5)


def test_the_data_bin_of_the_last_start_is_recorded(config, step, tmp_path):
    step(start_training)
    moved = shutil.copytree(config.data_bin.folder, tmp_path / "moved")
    step(start_training, settings=["--data-bin", str(moved)])
    assert load_record(config.folder).data_bin == str(moved)


def test_a_diverged_run_is_neither_trained_nor_evaluated_again(config, step):
    step(start_training)
    (config.folder / "train.log").write_text(LOG.rpartition("2026")[0] + DIVERGED)
    message = "diverged after update 20 (gradients are Nan/Inf)"
    assert message in step(record_divergence).err
    assert load_record(config.folder).divergence == Divergence(20, "gradients are Nan/Inf")
    for function in (start_training, start_evaluation, needs_analysis):
        outcome = step(function)
        assert not outcome.result and message in outcome.err


def test_training_that_failed_for_another_reason_did_not_diverge(config, step, refused):
    step(start_training)
    (config.folder / "train.log").write_text(LOG + DIVERGED + LOG + "RuntimeError: no space left\n")
    message = f"fairseq-train failed (RuntimeError: no space left); see the end of {config.folder / 'train.log'}"
    assert message in refused(record_divergence, exit_status=1)
    assert load_record(config.folder).divergence is None


def test_a_diverged_run_can_start_over_with_other_flags(config, step, refused):
    step(start_training)
    (config.folder / "train.log").write_text(LOG + DIVERGED)
    step(record_divergence)
    assert "created with different settings: --lr" in refused(start_training, "--lr", "1e-9")
    step(start_training, "--lr", "1e-9", settings=["--accept-mixed"])
    assert load_record(config.folder).divergence is None
    assert "valid_loss" not in (config.folder / "train.log").read_text()  # without a checkpoint it starts over


def test_training_with_all_its_updates_is_not_resumed(config, step):
    step(start_training, "--max-update", "6")
    best = write_checkpoint(config, "checkpoint_best.pt", updates=3)
    last = write_checkpoint(config, "checkpoint_last.pt", updates=6)
    (config.folder / "train.log").write_text(LOG)
    assert step(start_training, "--max-update", "6").result is None
    assert load_record(config.folder).training.updates == 6
    assert best.read_bytes() == last.read_bytes(), "what translates is the last checkpoint, whose loss is the best"


def test_a_resumption_that_fails_at_once_did_not_diverge(config, step, refused):
    step(start_training)
    (config.folder / "train.log").write_text(LOG + DIVERGED)
    step(record_divergence)
    step(start_training, "--lr", "abc", settings=["--accept-mixed"])
    with (config.folder / "train.log").open("a") as log:
        log.write("error: argument --lr: invalid float value: 'abc'\n")
    assert "fairseq-train failed (error: argument --lr" in refused(record_divergence, exit_status=1)
