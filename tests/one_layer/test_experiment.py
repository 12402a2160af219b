"""Training, the choices on validation data, resuming, and the command line."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from relumt.errors import AttemptFailedError
from relumt.one_layer import __main__, experiment, settings
from relumt.one_layer.examples import Examples, Splits
from relumt.one_layer.generated_data import write_iam, write_mnist
from relumt.one_layer.record import read_repetitions, read_training, seed_path
from relumt.one_layer.settings import PRESETS
from relumt.one_layer.tasks import TASKS
from relumt.one_layer.training import rate_factor, score, train

TINY = replace(PRESETS["smoke"]["adding"].settings, num_train=16, num_valid=8, num_test=8, batch_size=8)


@pytest.fixture
def tiny(monkeypatch):
    """Let preset smoke take milliseconds."""
    monkeypatch.setitem(settings.PRESETS, "smoke", {**PRESETS["smoke"], "adding": settings.TaskPlan(TINY, 2)})


@pytest.fixture
def run(tiny, tmp_path, capsys):
    """Return a function that runs the adding problem and returns the exit status and the lines on stderr."""

    def main(*arguments):
        status = 0
        try:
            __main__.main(["--preset", "smoke", "--tasks", "adding", "--out", str(tmp_path), *arguments])
        except SystemExit as ended:
            status = ended.code
        return status, capsys.readouterr().err.splitlines()

    return main


def test_the_learning_rate_rises_and_falls():
    factors = [rate_factor(update, 100) for update in range(100)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[5:] == sorted(factors[5:], reverse=True) and 0 < factors[-1] < 0.02
    assert max(factors) == 1


class Constant(nn.Module):
    """A model whose answer is a trained number."""

    def __init__(self, *_):
        super().__init__()
        self.answer = nn.Parameter(torch.zeros(()))

    def forward(self, inputs):
        return self.answer.expand(len(inputs))


def constant_task(target):
    """Return the adding problem with a constant model, and splits with one constant target."""
    examples = Examples(torch.zeros(8, 1), torch.full((8,), target))
    return replace(TASKS["adding"], model=Constant), Splits(examples, examples, examples)


def test_the_weights_of_the_best_epoch_are_kept():
    task, splits = constant_task(0.005)
    # The answer moves away from 0 by the learning rate at first, so later epochs overshoot the target.
    trained = train(task, splits, replace(TINY, epochs=3), "softmax", rate=0.01, seed=1)
    errors = [scores["mse"] for scores in trained.validation]
    assert trained.best_epoch == 1 + errors.index(min(errors)) and min(errors) < max(errors)
    assert 100 * (trained.model.answer.item() - 0.005) ** 2 == pytest.approx(min(errors), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", settings.MECHANISMS)
def test_words_that_follow_a_pattern_are_read_without_errors(mechanism, tmp_path):
    write_iam(tmp_path)
    recipe = replace(PRESETS["smoke"]["iam"].settings, epochs=40, batch_size=16, dropout=0.0)
    splits = TASKS["iam"].load(recipe, tmp_path)
    trained = train(TASKS["iam"], splits, recipe, mechanism, rate=3e-3, seed=1)
    assert score(TASKS["iam"], trained.model, splits.test)["edit distance"] < 0.1


def test_a_loss_that_is_not_finite_ends_the_training():
    task, splits = constant_task(float("inf"))
    with pytest.raises(AttemptFailedError, match=r"softmax, learning rate 0\.01, seed 1: the loss is inf in epoch 1"):
        train(task, splits, TINY, "softmax", rate=0.01, seed=1)


def test_repetitions_take_the_best_rate_on_validation_data_and_only_they_see_the_test_set(run, tmp_path):
    status, printed = run()
    assert status == 0 and len(printed) == 8
    for mechanism in settings.MECHANISMS:
        tried = [read_training(path) for path in sorted((tmp_path / "adding" / mechanism).glob("rate-*.json"))]
        assert [one.test for one in tried] == [None, None]
        best = min(tried, key=lambda one: one.best_validation["mse"]).learning_rate
        repetitions = read_repetitions(tmp_path, "adding", mechanism)
        assert repetitions.keys() == {1, 2}
        assert all(one.learning_rate == best and one.test["mse"] > 0 for one in repetitions.values())
        assert repetitions[1].test != repetitions[2].test


def test_what_is_missing_is_trained_again_with_the_same_result(run, tmp_path):
    run()
    path = seed_path(tmp_path, "adding", "inhibitor", 2)
    before = read_training(path)
    path.unlink()
    status, printed = run()
    assert status == 0 and len(printed) == 1 and "1 of 1: inhibitor, seed 2" in printed[0]
    after = read_training(path)
    assert (after.test, after.validation) == (before.test, before.validation)
    assert run() == (0, [])


def test_more_repetitions_are_added(run, tmp_path):
    run()
    status, printed = run("--repetitions", "3")
    assert status == 0 and len(printed) == 2
    assert read_repetitions(tmp_path, "adding", "softmax").keys() == {1, 2, 3}


def test_other_settings_in_the_same_folder_are_refused(run, tmp_path, monkeypatch):
    run()
    plan = settings.TaskPlan(replace(TINY, epochs=2, dropout=0.5), 2)
    monkeypatch.setitem(settings.PRESETS, "smoke", {"adding": plan})
    status, printed = run()
    expected = (
        f"relumt: error: {tmp_path / 'adding'} was created with different settings: epochs 1 (now 2), dropout 0.0 "
        "(now 0.5); choose another folder with --out"
    )
    assert (status, printed) == (2, [expected])


def test_other_data_in_the_same_folder_is_refused(run, tmp_path, monkeypatch):
    run()
    seed_path(tmp_path, "adding", "softmax", 1).unlink()
    _, splits = constant_task(0.0)
    other = replace(TASKS["adding"], load=lambda *_: replace(splits, data={"train": "0"}))
    monkeypatch.setitem(experiment.TASKS, "adding", other)
    status, (line,) = run()
    assert status == 2 and "was created with other data: train differ; choose another folder" in line


def test_a_damaged_result_is_named(run, tmp_path):
    run()
    path = seed_path(tmp_path, "adding", "softmax", 1)
    path.write_text("{")
    status, (line,) = run()
    assert status == 2 and f"{path}: not in the expected format" in line and "delete it to train again" in line


def test_missing_data_of_any_task_is_refused_before_the_first_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["--preset", "small", "--out", "results", "--imdb", "here"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "data/mnist: expected train-images-idx3-ubyte" in line and not (tmp_path / "results").exists()


def test_damaged_data_of_any_task_is_refused_before_the_first_training(tmp_path, capsys):
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    folders = ["--out", str(tmp_path / "results"), "--mnist", str(tmp_path / "mnist")]
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["--preset", "small", "--tasks", "adding", "mnist", *folders])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}: not a complete gzip file" in line and not (tmp_path / "results").exists()


@pytest.mark.parametrize("arguments", [["--tasks", "cifar"], ["--repetitions", "0"], ["--preset", "tiny"], ["--out="]])
def test_invalid_arguments_are_refused_on_one_line(run, arguments):
    status, printed = run(*arguments)
    assert status == 2 and len(printed) == 1


def test_results_are_json_with_settings_times_and_revision(run, tmp_path):
    run()
    common = json.loads((tmp_path / "adding" / "settings.json").read_text())
    assert common["settings"]["epochs"] == 1 and common["data"] == {}
    result = json.loads(seed_path(tmp_path, "adding", "softmax", 1).read_text())
    assert result["revision"] and result["finished"] and result["cpu_seconds"] > 0 and result["versions"]["torch"]
