import pickle

import pytest
import torch

from relumt.runs.record import Divergence, load_record
from tests.runs.cases import LOG, train, translate, write_checkpoint


def test_training_and_evaluation_are_not_repeated(config, step):
    lines = step("start-training", "--lr", "1e-3").out.splitlines()
    assert lines[:2] == [str(config.folder / "train.log"), str(config.data_bin.folder)]
    assert lines[-1] == "--cpu" and "--lr" in lines
    train(config, step)
    assert load_record(config.folder).training.parameters == 1000
    printed = step("start-training")
    assert printed.out == "" and "trained already" in printed.err
    lines = step("start-evaluation").out.splitlines()
    assert lines[0] == str(config.folder / "generate-test.log")
    assert str(config.checkpoints / "checkpoint_best.pt") in lines
    assert "tok:none" in translate(config, step).err
    evaluation = load_record(config.folder).test_evaluation
    assert evaluation.sentences == 1 and 0 < evaluation.scores["bleu_tokenized"].score < 100
    assert (config.folder / "test.hyp").read_text() == (config.folder / "test.hyp.tok").read_text() == "a b c d f\n"
    printed = step("start-evaluation")
    assert printed.out == "" and "evaluated already" in printed.err


def test_other_flags_of_training_are_refused_or_recorded(config, step, refused):
    train(config, step)
    before = (config.folder / "run.json").read_text()
    assert "--max-epoch 2 (now --max-epoch 9)" in refused("start-training", "--max-epoch", "9")
    assert (config.folder / "run.json").read_text() == before
    assert step("start-training", "--max-epoch", "9", settings=["--accept-mixed"]).out
    assert load_record(config.folder).environment_changes[0].differences == ["--max-epoch 2 (now --max-epoch 9)"]


def test_an_unknown_setting_of_kernels_is_refused_before_anything_is_written(config, refused, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fast")
    assert "RELUMT_KERNELS is 'fast'; it must be one of auto" in refused("start-training")
    assert not config.folder.exists()


def test_a_checkpoint_that_contains_code_is_refused(config, step, refused):
    train(config, step)
    torch.save({"model": {}, "code": print}, config.checkpoints / "checkpoint_best.pt", pickle_module=pickle)
    assert "contains code" in refused("start-evaluation")


def test_steps_out_of_order_are_refused(config, step, refused):
    assert "training is not finished" in refused("start-evaluation")
    assert "no run.json" in refused("finish-training")
    train(config, step)
    assert "run scripts/evaluate.sh" in refused("score")
    (config.checkpoints / "checkpoint_best.pt").unlink()
    assert "no checkpoint" in refused("start-evaluation")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--seed", "one"], "SEED is 'one'"),
        (["--precision", "fp8"], "PRECISION is 'fp8'"),
        (["--precision", "fp16"], "needs a GPU"),
    ],
)
def test_invalid_settings_are_refused(refused, settings, message):
    assert message in refused("start-training", settings=settings)


DIVERGED = """\
2026-01-01 10:00:05 | INFO | train_inner | {"epoch": 1, "update": 0.4, "loss": "9", "num_updates": "20", "wall": "4"}
Traceback (most recent call last):
FloatingPointError: gradients are Nan/Inf

During handling of the above exception, another exception occurred:

StopIteration
"""


def test_a_diverged_run_is_neither_trained_nor_evaluated_again(config, step):
    step("start-training")
    (config.folder / "train.log").write_text(LOG.rpartition("2026")[0] + DIVERGED)
    message = "diverged after update 20 (gradients are Nan/Inf)"
    assert message in step("record-divergence").err
    assert load_record(config.folder).divergence == Divergence(20, "gradients are Nan/Inf")
    for name in ("start-training", "start-evaluation", "folder-to-analyze"):
        printed = step(name)
        assert printed.out == "" and message in printed.err


def test_training_that_failed_for_another_reason_did_not_diverge(config, step, refused):
    step("start-training")
    (config.folder / "train.log").write_text(LOG + DIVERGED + LOG + "RuntimeError: no space left\n")
    message = f"fairseq-train failed (RuntimeError: no space left); see the end of {config.folder / 'train.log'}"
    assert message in refused("record-divergence", exit_status=1)
    assert load_record(config.folder).divergence is None


def test_a_diverged_run_can_start_over_with_other_flags(config, step, refused):
    step("start-training")
    (config.folder / "train.log").write_text(LOG + DIVERGED)
    step("record-divergence")
    assert "created with different settings: --lr" in refused("start-training", "--lr", "1e-9")
    step("start-training", "--lr", "1e-9", settings=["--accept-mixed"])
    assert load_record(config.folder).divergence is None
    assert "valid_loss" not in (config.folder / "train.log").read_text()  # without a checkpoint it starts over


def test_training_with_all_its_updates_is_not_resumed(config, step):
    step("start-training", "--max-update", "6")
    best = write_checkpoint(config, "checkpoint_best.pt", updates=3)
    last = write_checkpoint(config, "checkpoint_last.pt", updates=6)
    (config.folder / "train.log").write_text(LOG)
    assert step("start-training", "--max-update", "6").out == ""
    assert load_record(config.folder).training.updates == 6
    assert best.read_bytes() == last.read_bytes(), "what translates is the last checkpoint, whose loss is the best"


def test_a_resumption_that_fails_at_once_did_not_diverge(config, step, refused):
    step("start-training")
    (config.folder / "train.log").write_text(LOG + DIVERGED)
    step("record-divergence")
    step("start-training", "--lr", "abc", settings=["--accept-mixed"])
    with (config.folder / "train.log").open("a") as log:
        log.write("error: argument --lr: invalid float value: 'abc'\n")
    assert "fairseq-train failed (error: argument --lr" in refused("record-divergence", exit_status=1)
