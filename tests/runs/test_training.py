"""`relumt run --train`: what is trained, resumed, refused and recorded."""

from pathlib import Path

import pytest

from relumt.cli import main
from relumt.files import file_sha256
from relumt.runs.launch import locked
from relumt.runs.record import Divergence, Initialization, find_record, load_record
from tests.attacks.attack import snapshot
from tests.runs.cases import (
    DIVERGED,
    DONE,
    LOG,
    Killed,
    Step,
    index,
    write_checkpoint,
    write_data_bin,
    write_dataset,
)

SMALL = Path("data-bin/small")
FAILED = Step("ValueError: dropout has to be between 0 and 1\n", checkpoints=(), status=1)


def test_training_is_not_repeated(run, fairseq, config):
    run("train", "--lr", "2")
    (command,) = fairseq.started
    assert (command.tool, command.append, command.value("--lr")) == ("train", False, "2")
    assert command.arguments[0] == "data-bin/small" and command.arguments[-1] == "--cpu"
    assert command.value("--finetune-from-model") is None
    record = load_record(config.folder)
    assert (record.training.parameters, record.extra_flags) == (1000, ["--lr", "2"])
    assert "trained already" in run("train", "--lr", "2")
    assert len(fairseq.started) == 1


@pytest.mark.parametrize("softmax_epochs", [0, 1, 2])
def test_a_training_that_softmax_did_alone_is_told(run, fairseq, config, softmax_epochs):
    printed = run("train", "--attention-softmax-epochs", str(softmax_epochs))
    assert load_record(config.folder).training.epochs == 1
    assert ("softmax trained all epochs" in printed) == (softmax_epochs >= 1)


@pytest.mark.parametrize(
    ("name", "flags", "problem"),
    [
        ("test.de-en.de", "--max-source-positions 12", "sentence 3 of test has 13 tokens, but --max-source-"),
        ("test.de-en.en", "--max-target-positions 12 --truncate-source", "but --max-target-positions is 12; give"),
        ("valid.de-en.de", "--max-source-positions 12", "sentence 3 of valid has 13 tokens"),
        ("test.de-en.de", "--max-source-positions 12 --skip-invalid-size-inputs-valid-test", "of test has"),
        ("valid.de-en.de", "--max-source-positions 12 --skip-invalid-size-inputs-valid-test", ""),
        ("valid.de-en.de", "--max-source-positions 12 --disable-validation", ""),
        ("train.de-en.de", "--max-source-positions 12", ""),
        ("test.de-en.de", "--max-source-positions 12 --truncate-source", ""),
        ("test.de-en.de", "--max-source-positions 13", ""),
        ("test.de-en.de", "--max-source-positions x", ""),  # fairseq says what is wrong
    ],
)
def test_sentences_that_are_too_long_to_validate_on_or_to_translate_are_refused(run, fairseq, name, flags, problem):
    (SMALL / f"{name}.idx").write_bytes(index(3, length=13))
    printed = run("train", *flags.split(), status=2 if problem else 0)
    assert problem in printed and len(fairseq.started) == (not problem)


def test_a_sentence_of_more_tokens_than_fairseq_allows_by_default_is_refused(run, fairseq):
    (SMALL / "test.de-en.de.idx").write_bytes(index(3, length=1025))
    assert "1025 tokens, but --max-source-positions is 1024; give --max" in run("train", status=2)
    write_dataset(Path("configs"), "small", generate="--gen-subset valid")
    run("train")


def test_the_same_command_resumes_a_killed_training(run, fairseq, config):
    fairseq.steps = [Step(LOG, killed=True)]
    with pytest.raises(Killed):
        run("train")
    run("train")
    first, resumed = fairseq.started
    assert first.arguments == resumed.arguments and resumed.append
    assert (config.folder / "train.log").read_text().count("training on 1 devices") == 2


def test_a_training_that_was_killed_after_its_end_is_recorded(run, fairseq, config):
    fairseq.steps = [Step(LOG + DONE, killed=True)]
    with pytest.raises(Killed):
        run("train")
    run("train")
    assert len(fairseq.started) == 1 and load_record(config.folder).training.updates == 6


@pytest.mark.parametrize(("status", "exit_status"), [(2, 2), (-9, 1)])
def test_another_failure_is_passed_on_and_leaves_nothing_in_the_way(run, fairseq, config, status, exit_status):
    fairseq.steps = [FAILED._replace(status=status)]
    message = "fairseq-train failed (ValueError: dropout has to be between 0 and 1); see the end of"
    assert f"{message} {config.folder / 'train.log'}" in run("train", "--dropout", "2", status=exit_status)
    assert not load_record(config.folder).has_ended
    run("train", "--dropout", "0.3")
    record = load_record(config.folder)
    assert record.training and not record.accepted_changes and not fairseq.started[-1].append
    assert "ValueError" not in (config.folder / "train.log").read_text()


def start_from_default():
    for dataset, settings in {"small": {"starts_from": "default"}, "default": {"data_bin": "small"}}.items():
        write_dataset(Path("configs"), dataset, **settings)


DIFFERENCES = {
    "--lr 1e-3 (now --lr 9)": lambda _: ["--lr", "9"],
    "data train ": lambda _: (SMALL / "train.de-en.de.idx").write_bytes(b"others"),
    "vocabulary en ": lambda _: (SMALL / "dict.en.txt").write_text("x 1\n"),
    "initialization dataset none (now default)": lambda _: start_from_default(),
}
"""Phrase of a message → how to cause it, given a function that replaces a part of relumt; may return flags."""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lrr", "2"], "fairseq-train: unrecognized arguments: --lrr 2"),
        (["--arch", "relufromer"], "fairseq-train: argument --arch/-a: invalid choice: 'relufromer'"),
    ],
)
def test_a_mistyped_flag_of_an_existing_run_is_named_and_drops_nothing(run, fairseq, config, flags, message):
    run("train")
    run("evaluate")
    before = snapshot(config.folder)
    for options in ((), ("--force",)):
        assert message in run("train", *flags, options=options, status=2)
    assert snapshot(config.folder) == before and len(fairseq.started) == 2


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_every_difference_is_refused_or_recorded(run, fairseq, config, monkeypatch, difference):
    run("train")
    run("evaluate")
    before = snapshot(config.folder)
    found = DIFFERENCES[difference](lambda name, value: monkeypatch.setattr(f"relumt.{name}", value))
    flags = found if isinstance(found, list) else []
    error = run("train", *flags, status=2)
    assert f"{config.folder} was created with different settings: " in error and difference in error
    assert snapshot(config.folder) == before and len(fairseq.started) == 2
    run("train", *flags, options=["--force"])
    assert fairseq.started[-1].append and fairseq.started[-1].value("--finetune-from-model") is None
    record = load_record(config.folder)
    (change,) = record.accepted_changes
    assert any(difference in text for text in change.differences)
    assert record.training and not record.evaluations
    assert "trained already" in run("train", *flags)


def test_checkpoints_without_a_record_are_refused(run, config):
    write_checkpoint(config.folder)
    before = snapshot(config.folder)
    for options in ([], ["--force"]):
        assert "checkpoints without run.json; restore it from a copy" in run("train", options=options, status=2)
    assert snapshot(config.folder) == before


def test_a_diverged_run_is_not_trained_again_unless_that_is_forced(run, fairseq, config):
    fairseq.steps = [Step(LOG + DIVERGED, checkpoints=(), status=1)]
    message = "diverged after update 20 (gradients are Nan/Inf)"
    assert message in run("train")
    assert load_record(config.folder).divergence == Divergence(20, "gradients are Nan/Inf")
    for stage in ("train", "evaluate", "analyze"):
        assert message in run(stage)
    assert "--lr 1e-3 (now --lr 1e-9)" in run("train", "--lr", "1e-9", status=2)
    assert len(fairseq.started) == 1
    run("train", "--lr", "1e-9", options=["--force"])
    record = load_record(config.folder)
    assert record.training and not record.divergence and not fairseq.started[-1].append


def test_a_resumption_that_fails_did_not_diverge(run, fairseq, config):
    fairseq.steps = [Step(LOG + DIVERGED, killed=True), FAILED._replace(status=1)]
    with pytest.raises(Killed):
        run("train")
    assert "fairseq-train failed (ValueError" in run("train", status=1)
    assert not load_record(config.folder).has_ended


def test_a_dry_run_prints_the_commands_and_writes_nothing(run, fairseq, configs):
    write_dataset(configs, "small", starts_from="default", length_penalties=[0.6, 1.0])
    write_dataset(configs, "default", data_bin="small")
    printed = run("train", "--lr", "2", "--dry-run", options=["--evaluate", "--analyze"])
    first, second, search, generate = (line for line in printed.splitlines() if line.startswith("fairseq-"))
    assert first.startswith("fairseq-train data-bin/small --") and " --save-dir runs/default/stock/1/" in first
    assert " --lr 2 " in second and "--finetune-from-model runs/default/stock/1/checkpoints/checkpoint_best" in second
    assert search.startswith("fairseq-generate ") and " --gen-subset valid " in search
    assert "--gen-subset" not in generate and "its log would be runs/small/stock/1/generate-test.log" in printed
    assert not fairseq.started and not Path("runs").exists()
    run("train")
    before = snapshot(Path("runs"))
    assert "fairseq-generate" in run("evaluate", options=["--dry-run"])
    assert "trained already" in run("train", options=["--dry-run"])
    assert snapshot(Path("runs")) == before


def test_a_run_that_is_in_use_is_refused(run, fairseq, config, monkeypatch):
    monkeypatch.setattr("relumt.runs.launch.PATIENCE", 0.1)
    with locked(config.folder):
        message = f"{config.folder}: another process is working on this run; wait for it or stop it"
        assert message in run("train", status=2)


@pytest.fixture
def pretraining(config, configs) -> Path:
    """The folder of the run from whose weights the run on `small` starts."""
    start_from_default()
    return Path("runs/default/stock/1")


def test_the_run_that_provides_the_initial_weights_is_trained_first(run, fairseq, config, pretraining):
    run("train", "--lr", "2")
    first, second = fairseq.started
    checkpoint = pretraining / "checkpoints/checkpoint_best.pt"
    assert first.value("--save-dir") == str(checkpoint.parent) and first.value("--lr") == "1e-3"
    assert second.value("--finetune-from-model") == str(checkpoint) and second.value("--lr") == "2"
    initial = load_record(pretraining).provenance
    flags = {name: value for name, value in initial.flags.items() if name != "--seed"}
    expected = Initialization("default", file_sha256(checkpoint), flags, initial.data)
    assert load_record(config.folder).provenance.initialization == expected
    assert "trained already" in run("train", "--lr", "2")
    write_checkpoint(pretraining, updates=7)
    assert "created with different settings: initialization sha256 " in run("train", "--lr", "2", status=2)
    checkpoint.unlink()  # what is unknown cannot differ
    assert "trained already" in run("train", "--lr", "2")
    assert load_record(config.folder).provenance.initialization == expected


def test_a_run_waits_for_initial_weights_that_another_process_trains(run, fairseq, config, pretraining, monkeypatch):
    def wait(folder, waits):
        if waits and not fairseq.started:
            main(["run", "--train", "--", "default", "stock"])  # the other process
        return locked(folder, waits)

    monkeypatch.setattr("relumt.runs.training.locked", wait)
    assert f"{pretraining}: trained already" in run("train")
    assert [Path(command.value("--save-dir")).parent for command in fairseq.started] == [pretraining, config.folder]


@pytest.mark.parametrize("checkpoints", [(), ("checkpoint_best.pt",)])
def test_a_run_that_was_killed_resumes_from_its_own_checkpoint_if_it_has_one(run, fairseq, pretraining, checkpoints):
    fairseq.steps = [Step(), Step(LOG, checkpoints, killed=True)]
    with pytest.raises(Killed):
        run("train")
    run("train")
    resumed = fairseq.started[2]
    assert (resumed.value("--finetune-from-model") is None) == resumed.append == bool(checkpoints)


def test_a_run_diverged_if_that_of_its_initial_weights_did(run, fairseq, config, pretraining):
    fairseq.steps = [Step(LOG + DIVERGED, checkpoints=(), status=1)]
    message = "diverged after update 0 (the run on default, from whose weights it would start, diverged)"
    for stage in ("train", "train", "evaluate"):
        assert message in run(stage)
    assert len(fairseq.started) == 1 and load_record(config.folder).divergence.update == 0


def exchange_vocabulary(configs):
    write_dataset(configs, "default", data_bin="other")
    write_data_bin(Path("data-bin/other"), symbols=("x",))


def name_another_data_bin(configs):
    write_dataset(configs, "default", data_bin="other")
    return ["--data-bin", str(write_data_bin(Path("data-bin/mine")))]


IMPOSSIBLE = {
    "DATA_BIN is set, but training starts from default, which has another data-bin; unset it": name_another_data_bin,
    "vocabulary or direction (de-en) is not that of data-bin/other, on which its training starts": exchange_vocabulary,
    "starts_from = 'default', which starts from small itself": lambda configs: write_dataset(
        configs, "default", starts_from="small"
    ),
    "starts_from = 'nope', which is not a dataset in": lambda configs: write_dataset(
        configs, "small", starts_from="nope"
    ),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_impossible_initial_weights_are_refused(run, fairseq, configs, pretraining, message):
    assert message in run("train", options=IMPOSSIBLE[message](configs) or (), status=2)
    assert not fairseq.started and find_record(pretraining) is None
