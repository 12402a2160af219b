"""Runs that start from the weights of another run, by `starts_from` of their dataset."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.evaluation_steps import start_evaluation
from relumt.runs.initialization import resolve_pretraining
from relumt.runs.record import Divergence, Initialization, find_record, load_record, save_record
from relumt.runs.run_config import resolve_run_config
from relumt.runs.training_steps import check_training, start_training
from tests.runs.cases import (
    reverse_data_bin,
    scored_record,
    train,
    with_value,
    write_checkpoint,
    write_data_bin,
    write_dataset,
)


@pytest.fixture
def pretraining(config, configs):
    """The configuration of the run on sentences whose weights `small` starts from."""
    write_dataset(configs, "small", starts_from="default")
    write_dataset(configs, "default", data_bin="small")
    return replace(config, dataset="default", folder=config.folder.parents[2] / "default" / "stock" / "1")


def datasets_to_train(step, *flags):
    """Return what scripts/train.sh would train on, in this order."""
    return [config.dataset_argument for config in step(check_training, *flags).result]


def pretrain(pretraining) -> Path:
    """Write the checkpoint and the record of a finished pretraining."""
    record = scored_record(flags={"--arch": "transformer", "--dropout": "0.1"})
    save_record(pretraining.folder, with_value(record, "provenance.data", {"train": "x"}))
    return write_checkpoint(pretraining)


def test_training_starts_from_the_best_checkpoint_of_the_pretraining(pretraining, config, step, refused):
    assert datasets_to_train(step) == ["default", "small"]
    message = f"{pretraining.folder}: training is not finished, but another run is to start from its weights"
    assert message in refused(start_training)
    checkpoint = pretrain(pretraining)
    command = step(start_training).result.arguments
    assert command[command.index("--finetune-from-model") + 1] == str(checkpoint)
    flags = {"--lr": "1", "--arch": "transformer", "--dropout": "0.1"}
    expected = Initialization("default", file_sha256(checkpoint), flags=flags, data={"train": "x"})
    assert load_record(config.folder).provenance.initialization == expected


def test_a_run_of_an_earlier_version_continues_without_the_settings_of_its_pretraining(pretraining, config, step):
    checkpoint = pretrain(pretraining)
    train(config, step)
    earlier = Initialization("default", file_sha256(checkpoint))
    save_record(config.folder, with_value(load_record(config.folder), "provenance.initialization", earlier))
    assert "trained already" in step(start_training).err


def test_nothing_is_pretrained_for_a_run_that_is_impossible_or_finished(pretraining, config, step, refused):
    assert "set SEED instead" in refused(check_training, "--seed", "7")
    pretrain(pretraining)
    train(config, step)
    assert datasets_to_train(step) == []
    shutil.rmtree(pretraining.folder)
    assert "trained already" in step(start_training).err


def test_pretraining_another_model_is_refused(pretraining, configs, refused, step):
    message = refused(check_training, "--encoder-attention-heads", "8")
    assert "but its model differs: --encoder-attention-heads 8 (no --encoder-attention-heads)" in message
    assert datasets_to_train(step, "--lr", "1", "--encoder-layerdrop", "0.1") == ["default", "small"]
    write_dataset(configs, "default", train="--relu-gamma 2", data_bin="small")
    assert "no --relu-gamma (--relu-gamma 2)" in refused(check_training)


def test_unknown_and_circular_pretraining_datasets_are_refused(pretraining, configs, refused):
    write_dataset(configs, "default", data_bin="small", starts_from="small")
    assert "starts_from = 'small', which starts from this dataset" in refused(check_training)
    write_dataset(configs, "small", starts_from="data-bin/small")
    assert "starts_from = 'data-bin/small' is not a dataset in" in refused(check_training)


def test_pretraining_on_another_vocabulary_is_refused(pretraining, configs, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    write_dataset(configs, "default")
    message = "DATA_BIN is the data-bin of small, but training starts from default, whose data-bin is data-bin/default"
    assert message in refused(check_training)
    write_data_bin(Path("data-bin/default"), symbols=("x",))
    with_default_folders = resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", None)
    with pytest.raises(UserError, match="differ in vocabulary"):
        resolve_pretraining(with_default_folders, None, [])


def test_pretraining_in_the_opposite_direction_is_refused(pretraining, configs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset(configs, "default")
    reverse_data_bin(write_data_bin(Path("data-bin/default")))
    config = resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", None)
    with pytest.raises(UserError, match="differ in vocabulary or direction"):
        resolve_pretraining(config, None, [])


def test_runs_with_and_without_pretraining_differ(config, configs, step, refused):
    train(config, step)
    write_dataset(configs, "small", starts_from="default")
    assert "initialization dataset none (now default)" in refused(start_training)
    write_dataset(configs, "small")
    record = with_value(load_record(config.folder), "provenance.initialization", Initialization("default", "1"))
    save_record(config.folder, record)
    assert "initialization dataset default (now none)" in refused(start_training)


def test_a_run_killed_at_its_first_checkpoint_resumes_from_that(pretraining, config, step):
    pretrain(pretraining)
    step(start_training)
    write_checkpoint(config, "checkpoint_best.pt", updates=3)
    assert "--finetune-from-model" not in step(start_training).result.arguments
    assert (config.checkpoints / "checkpoint_last.pt").is_file()


def test_runs_from_different_weights_differ(pretraining, config, step, refused):
    pretrain(pretraining)
    train(config, step)
    assert "trained already" in step(start_training).err
    write_checkpoint(pretraining, updates=7)
    assert "was created with different settings: initialization sha256 " in refused(start_training)


def test_a_trained_run_outlives_the_checkpoints_that_it_started_from(pretraining, config, step, refused):
    checkpoint = pretrain(pretraining)
    train(config, step)
    initialization = load_record(config.folder).provenance.initialization
    checkpoint.unlink()
    assert "trained already" in step(start_training).err
    assert load_record(config.folder).provenance.initialization == initialization
    (config.folder / "run.json").unlink()
    (config.checkpoints / "checkpoint_best.pt").unlink()
    assert f"{pretraining.folder / 'checkpoints'}: no checkpoint" in refused(start_training)


def test_weights_that_contain_code_are_refused(pretraining, config, refused):
    checkpoint = pretrain(pretraining)
    checkpoint.write_bytes(pickle.dumps(print))
    assert str(checkpoint) in refused(start_training)
    assert find_record(config.folder) is None


def test_a_run_diverged_if_its_pretraining_did(pretraining, config, step, refused):
    inf = Divergence(3, "inf")
    save_record(pretraining.folder, replace(scored_record(), training=None, evaluations={}, divergence=inf))
    assert step(start_training).result is None
    message = "diverged after update 0 (the run on default, from whose weights it would start, diverged)"
    assert message in step(start_training).err and message in step(start_evaluation).err
    pretrain(pretraining)
    assert "initialization sha256 none (now " in refused(start_training)


def test_without_starts_from_training_starts_from_new_weights(step):
    assert datasets_to_train(step) == ["small"]
    assert "--finetune-from-model" not in step(start_training).result.arguments
