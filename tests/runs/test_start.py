"""Runs that start from the weights of another run, by `starts_from` of their dataset."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.record import load_record, save_record
from relumt.runs.run_config import plan_run
from relumt.runs.start import first_of
from tests.runs.cases import leave_checkpoint, train, write_data_bin, write_dataset


@pytest.fixture
def first(plan, configs):
    """The run of sentences that `small` starts from, which is to be left in its folder."""
    write_dataset(configs, "small", starts_from="default")
    write_dataset(configs, "default", data_bin="small")
    return replace(plan, dataset="default", folder=plan.folder.parents[2] / "default" / "stock" / "1")


def test_a_run_starts_from_the_best_checkpoint_of_the_dataset_that_its_own_names(first, plan, step, refused):
    assert step("starts-from").out == "default\n"
    assert f"{first.folder}: not trained to the end, and what starts from it needs that" in refused("start")
    checkpoint = leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    command = step("start").out.splitlines()
    assert command[command.index("--finetune-from-model") + 1] == str(checkpoint)
    assert load_record(plan.folder)["fingerprint"]["start"] == {"dataset": "default", "sha256": file_sha256(checkpoint)}


def test_no_start_is_trained_for_a_run_that_cannot_be_or_has_begun(first, plan, step, refused):
    assert "set SEED instead" in refused("starts-from", "--seed", "7")
    leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    train(plan, step)
    assert step("starts-from").out == "\n"
    shutil.rmtree(first.folder)
    assert "trained already" in step("start").err


def test_a_start_is_of_the_same_model(first, configs, refused, step):
    said = refused("starts-from", "--encoder-attention-heads", "8")
    assert "not the model of" in said and "--encoder-attention-heads 8 (no --encoder-attention-heads)" in said
    assert step("starts-from", "--lr", "1", "--encoder-layerdrop", "0.1").out == "default\n"
    write_dataset(configs, "default", train="--relu-gamma 2", data_bin="small")
    assert "no --relu-gamma (--relu-gamma 2)" in refused("starts-from")


def test_a_start_that_is_no_dataset_or_leads_in_a_circle_is_refused(first, configs, refused):
    write_dataset(configs, "default", data_bin="small", starts_from="small")
    assert "starts_from = 'small', which starts from this one itself" in refused("starts-from")
    write_dataset(configs, "small", starts_from="data-bin/small")
    assert "starts_from = 'data-bin/small' is not a dataset in" in refused("starts-from")


def test_a_start_shares_the_data_bin_or_at_least_its_vocabulary(first, plan, configs, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    write_dataset(configs, "default")
    said = refused("starts-from")
    assert "DATA_BIN is the data-bin of small, but training starts from default, whose data-bin is data-bin/d" in said
    write_data_bin(Path("data-bin/default"), symbols=("x",))
    of_default_folders = plan_run("small", "stock", 1, configs, tmp_path / "runs", None)
    with pytest.raises(UserError, match="differ in vocabulary"):
        first_of(of_default_folders, None, [])


def test_with_or_without_a_start_is_not_the_same_run(plan, configs, step, refused):
    train(plan, step)
    write_dataset(configs, "small", starts_from="default")
    assert "start dataset none (now default)" in refused("start")
    write_dataset(configs, "small")
    record = load_record(plan.folder)
    record["fingerprint"]["start"] = {"dataset": "default", "sha256": "1"}
    save_record(plan.folder, record)
    assert "start dataset default (now none)" in refused("start")
    del record["fingerprint"]["start"]  # a record from before there were any
    save_record(plan.folder, record)
    assert "trained already" in step("start").err


def test_a_run_killed_at_its_first_checkpoint_goes_on_from_that_and_not_from_its_start(first, plan, step):
    leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    step("start")
    leave_checkpoint(plan, "checkpoint_best.pt", updates=3)
    assert "--finetune-from-model" not in step("start").out
    assert (plan.checkpoints / "checkpoint_last.pt").is_file()


def test_a_run_from_another_start_is_another_run(first, plan, step, refused):
    leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    train(plan, step)
    assert "trained already" in step("start").err
    leave_checkpoint(first, updates=7)
    assert "was made otherwise: start sha256 " in refused("start")


def test_what_was_started_outlives_the_checkpoints_of_its_start(first, plan, step, refused):
    checkpoint = leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    train(plan, step)
    started = load_record(plan.folder)["fingerprint"]["start"]
    checkpoint.unlink()
    assert "trained already" in step("start").err
    assert load_record(plan.folder)["fingerprint"]["start"] == started
    (plan.folder / "run.json").unlink()
    (plan.checkpoints / "checkpoint_best.pt").unlink()
    assert f"{first.folder / 'checkpoints'}: no checkpoint" in refused("start")


def test_a_start_that_carries_code_is_refused_and_leaves_nothing(first, plan, refused):
    checkpoint = leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    checkpoint.write_bytes(pickle.dumps(print))
    assert str(checkpoint) in refused("start")
    assert load_record(plan.folder) is None


def test_a_run_whose_start_diverged_did_so_too(first, plan, step, refused):
    save_record(first.folder, {"diverged": {"update": 3, "reason": "inf"}})
    assert step("start").out == ""
    told = "diverged after update 0 (as the run on default did, from which it would start)"
    assert told in step("start").err and told in step("evaluate").err
    leave_checkpoint(first)
    save_record(first.folder, {"training": {}})
    assert "start sha256 none (now " in refused("start")


def test_a_dataset_without_a_start_begins_with_new_weights(step):
    assert step("starts-from").out == "\n"
    assert "--finetune-from-model" not in step("start").out
