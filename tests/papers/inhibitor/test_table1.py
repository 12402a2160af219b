"""Training, the choices on validation data, resuming, the command line and the table."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from relumt.papers.inhibitor.generated_data import write_iam, write_mnist
from relumt.papers.inhibitor.results import read_result, write_result
from relumt.papers.inhibitor.table1 import (
    MECHANISMS,
    Training,
    compare,
    main,
    paired_p_value,
    rate_factor,
    read_repetitions,
    score,
    train,
)
from relumt.papers.inhibitor.table1_data import PRESETS, Splits, load
from relumt.papers.inhibitor.table1_models import TASKS
from tests.papers.cases import render

ROOT = Path(__file__).resolve().parents[3]
TINY = replace(PRESETS["smoke"]["adding"], num_train=16, num_valid=8, num_test=8, batch_size=8)


@pytest.fixture
def run(tmp_path, run_command, monkeypatch):
    """Return a function that runs the adding problem in milliseconds and returns the lines on stderr."""
    monkeypatch.setitem(PRESETS, "smoke", {**PRESETS["smoke"], "adding": TINY})

    def run_main(*arguments):
        status, printed = run_command(main, "--preset=smoke", "--out", tmp_path, *arguments, "--tasks", "adding")
        assert status == 0
        return printed.err.splitlines()

    return run_main


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


def test_the_weights_of_the_best_epoch_are_kept(monkeypatch):
    monkeypatch.setitem(TASKS, "adding", TASKS["adding"]._replace(model=Constant))
    examples = TensorDataset(torch.zeros(8, 1), torch.full((8,), 0.005))
    splits = Splits(examples, examples, examples)
    # The answer moves away from 0 by the learning rate at first, so later epochs overshoot the target.
    model, validation, best_epoch = train("adding", splits, replace(TINY, epochs=3), "softmax", rate=0.01, seed=1)
    errors = [scores["mse"] for scores in validation]
    assert best_epoch == 1 + errors.index(min(errors)) and min(errors) < max(errors)
    assert 100 * (model.answer.item() - 0.005) ** 2 == pytest.approx(min(errors), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_words_that_follow_a_pattern_are_read_without_errors(mechanism, tmp_path):
    write_iam(tmp_path)
    recipe = replace(PRESETS["smoke"]["iam"], epochs=40, batch_size=16, dropout=0.0)
    splits = load("iam", recipe, tmp_path)
    model, _, _ = train("iam", splits, recipe, mechanism, rate=3e-3, seed=1)
    assert score("iam", model, splits.test)["edit distance"] < 0.1


def test_repetitions_take_the_best_rate_on_validation_data_and_only_they_see_the_test_set(run, tmp_path):
    assert len(run()) == 8
    for mechanism in MECHANISMS:
        tried = [read_result(path, Training) for path in sorted((tmp_path / "adding" / mechanism).glob("rate-*.json"))]
        assert [one.test for one in tried] == [None, None]
        best = min(tried, key=lambda one: one.validation[one.best_epoch - 1]["mse"]).learning_rate
        repetitions = read_repetitions(tmp_path / "adding" / mechanism)
        assert repetitions.keys() == {1, 2}
        assert all(one.learning_rate == best and one.test["mse"] > 0 for one in repetitions.values())
        assert repetitions[1].test != repetitions[2].test


def test_what_is_missing_is_trained_again_with_the_same_result(run, tmp_path):
    run()
    path = tmp_path / "adding" / "inhibitor" / "seed-2.json"
    before = read_result(path, Training)
    path.unlink()
    (printed,) = run()
    assert "1 of 1: inhibitor, seed 2" in printed
    after = read_result(path, Training)
    assert (after.test, after.validation) == (before.test, before.validation)
    assert run() == [] and len(run("--repetitions", "3")) == 2
    assert read_repetitions(tmp_path / "adding" / "softmax").keys() == {1, 2, 3}


def test_damaged_data_of_any_task_is_refused_before_the_first_training(tmp_path, run_command):
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    folders = "--out", tmp_path / "results", "--mnist", tmp_path / "mnist"
    status, printed = run_command(main, *folders, "--preset", "small", "--tasks", "adding", "mnist")
    assert status == 2 and printed.err.count("\n") == 1 and not (tmp_path / "results").exists()
    assert f"{path.parent}: cannot read the data of mnist" in printed.err


def write_training(runs, task, mechanism, seed, **scores):
    training = Training(1e-3, seed, [scores], 1, scores, "revision 1234567", {"torch": "2"})
    write_result(runs / "inhibitor_table1-small" / task / mechanism / f"seed-{seed}.json", training)


def test_means_differences_and_what_the_paper_prints(tmp_path):
    for seed, (softmax, inhibitor) in enumerate([(98.0, 97.0), (98.2, 97.4), (98.4, 97.2)], 1):
        write_training(tmp_path, "mnist", "softmax", seed, accuracy=softmax)
        write_training(tmp_path, "mnist", "inhibitor", seed, accuracy=inhibitor)
    write_training(tmp_path, "iam", "softmax", 1, **{"edit distance": 1.0, "edit distance, padded": 17.5})
    (table,) = render("inhibitor_table1", tmp_path)
    adding, mnist, _, iam, padded = table.rows
    assert adding == ["adding problem, mse %", "0.11", "0.12", "", "", "", "", "0"]
    # Standard errors 0.2/√3, times the quantile 4.303 of t with two degrees of freedom.
    assert mnist[3:5] == ["98.20 ± 0.50", "97.20 ± 0.50"]
    assert mnist[5:] == ["-1.00 (-1.50 to -0.50)", "0.013", "3"]
    assert (iam[1:5], padded[1:5]) == (["17.9", "18.1", "1.00", ""], ["", "", "17.50", ""])
    assert any("medians: MNIST, accuracy % 98.20 (softmax); MNIST, accuracy % 97.20" in note for note in table.notes)
    assert any("mnist (3 of 5), imdb (0 of 5), iam (0 of 5); scripts/reproduce.sh" in note for note in table.notes)
    assert "revision 1234567; torch 2" in table.notes


def test_a_mean_has_an_interval_from_two_seeds_on_and_p_is_1_without_a_difference():
    both = {1: 2.0, 2: 2.0}
    assert compare(both, both, ".1f") == ["2.0 ± 0.0", "2.0 ± 0.0", "+0.0 (+0.0 to +0.0)", "1.000", "2"]
    assert compare(both, {2: 3.0}, ".1f") == ["2.0 ± 0.0", "3.0", "", "", "1"]
    assert compare({}, {}, ".1f") == ["", "", "", "", "0"]
    assert paired_p_value([0.3] * 5) < 0.001


@pytest.mark.slow
def test_the_script_makes_the_whole_table_from_generated_data(tmp_path):
    command = [ROOT / "scripts" / "reproduce.sh", "inhibitor_table1", "--preset", "smoke"]
    environment = os.environ | {"PYTHON": sys.executable, "RUNS": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("| 2 |\n") == 5 and "preset smoke trains on generated data" in done.stdout
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout and ": seed" not in again.stderr
