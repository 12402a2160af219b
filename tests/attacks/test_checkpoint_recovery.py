"""Resuming after the last or the best checkpoint was lost or damaged, and files that do not count as checkpoints."""

import math
import sys
from pathlib import Path

import pytest
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from relumt.checkpoints import fairseq_hooks
from relumt.checkpoints.loading import load_checkpoint_safely
from relumt.checkpoints.recovery import recover_best_checkpoint, recover_last_checkpoint
from relumt.checkpoints.saving import copy_checkpoint_durably, save_checkpoint_durably
from relumt.runs.run_checkpoints import averaged_checkpoint, best_checkpoint, count_updates, has_checkpoints
from tests.attacks.attack import ROOT, snapshot
from tests.attacks.injected_faults import FLAGS, Training, write_training_data
from tests.attacks.saved_checkpoints import FOLDER, are_equal, content, write_folder
from tests.models.build import SMALL, arguments, write_checkpoint

pytestmark = pytest.mark.attack("checkpoints")


@pytest.mark.parametrize(
    ("damaged", "chosen"),
    [
        ([], 6),
        (["checkpoint_last.pt"], 6),
        (["checkpoint_last.pt", "checkpoint_1_6.pt"], 4),
        (["checkpoint_last.pt", "checkpoint_1_6.pt", "checkpoint_1_4.pt"], 4),
        (["checkpoint_last.pt", "checkpoint_1_6.pt", "checkpoint_1_4.pt", "checkpoint_best.pt"], 2),
        (["checkpoint_1_6.pt"], 6),
    ],
)
@pytest.mark.parametrize("how", ["truncated", "zeroed", "removed"])
def test_training_resumes_from_the_newest_intact_checkpoint(attack, capfd, damaged, chosen, how):
    write_folder(attack.folder, FOLDER)
    for name in damaged:
        path = attack.folder / name
        if how == "removed":
            path.unlink()
            continue
        good = path.read_bytes()
        path.write_bytes(good[:5000] if how == "truncated" else good[:5000] + bytes(1000) + good[6000:])
    assert recover_last_checkpoint(attack.folder) == chosen
    assert are_equal(load_checkpoint_safely("checkpoint_last.pt")["model"], content(chosen)["model"])
    message = capfd.readouterr().err
    assert message.count("\n") == ("checkpoint_last.pt" in damaged)
    assert not message or "resuming from the newest intact checkpoint, checkpoint_" in message
    attack.outcomes.append("handled")


def test_nothing_is_deleted_if_no_checkpoint_is_intact(attack):
    write_folder(attack.folder, FOLDER)
    for path in attack.folder.glob("checkpoint*.pt"):
        if "average" not in path.name:
            path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(attack.folder)
    message = attack.reads(recover_last_checkpoint, attack.folder)
    assert message.endswith(
        "checkpoint_last.pt is damaged, and no other checkpoint in its folder is intact; restore one from a copy, or "
        "move the folder away to train from the beginning"
    )
    assert snapshot(attack.folder) == before


def test_a_save_that_was_not_copied_is_not_lost(attack, capfd):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_last.pt."""
    write_folder(attack.folder, FOLDER | {"checkpoint_1_8.pt": 8})
    assert recover_last_checkpoint(attack.folder) == 8
    assert "checkpoint_last.pt is older than another; resuming from" in capfd.readouterr().err
    copy_checkpoint_durably(attack.folder / "checkpoint_1_4.pt", attack.folder / "checkpoint_last.pt")
    assert recover_last_checkpoint(attack.folder) == 4, "a user who goes back on purpose is not overruled"
    attack.outcomes.append("handled")


BEST = {
    "missing": lambda path: None,
    "dangling": lambda path: path.symlink_to("checkpoint_1_5.pt"),
    "truncated": lambda path: path.write_bytes(b"PK"),
    "older": lambda path: save_checkpoint_durably(content(4), path),
    "link to an older one": lambda path: path.symlink_to("checkpoint_1_4.pt"),
    "the last one": lambda path: save_checkpoint_durably(content(6), path),
    "link to the last one": lambda path: path.symlink_to("checkpoint_last.pt"),
    "newer": lambda path: save_checkpoint_durably(content(8), path),
    "average": lambda path: save_checkpoint_durably({name: content(4)[name] for name in ("model", "cfg")}, path),
}
"""What checkpoint_best.pt is → a function that writes it."""


@pytest.mark.parametrize(
    ("best", "loss", "problem"),
    [
        ("missing", 2.5, "is missing"),
        ("dangling", 2.5, "is missing"),
        ("truncated", 2.5, "is damaged"),
        ("older", 2.5, "is older"),
        ("link to an older one", 2.5, "is older"),
        ("older", 2.6, ""),
        ("older", math.nan, ""),
        ("older", None, ""),
        ("missing", None, ""),
        ("the last one", 2.5, ""),
        ("link to the last one", 2.5, ""),
        ("newer", 2.5, ""),  # a user went back to an older checkpoint_last.pt
        ("average", 2.5, ""),
    ],
)
def test_a_best_checkpoint_that_was_not_copied_is_not_lost(attack, capfd, best, loss, problem):
    """A process was killed after it saved a checkpoint and before it copied that to checkpoint_best.pt."""
    save_checkpoint_durably(content(4), attack.folder / "checkpoint_1_4.pt")
    save_checkpoint_durably(content(6, val_loss=loss, best=2.5), attack.folder / "checkpoint_last.pt")
    BEST[best](attack.folder / "checkpoint_best.pt")
    expected = snapshot(attack.folder)
    if problem:
        expected["checkpoint_best.pt"] = expected["checkpoint_last.pt"]
    recover_best_checkpoint(attack.folder)
    assert snapshot(attack.folder) == expected
    message = f"checkpoint_best.pt {problem}; replaced by checkpoint_last.pt (6 updates)" if problem else ""
    printed = capfd.readouterr().err
    assert message in printed and printed.count("\n") == bool(problem)
    attack.outcomes.append("handled")


def test_leftovers_of_killed_processes_are_removed(attack):
    write_folder(attack.folder, FOLDER)
    before = snapshot(attack.folder)
    for name in ("checkpoint_1_8.pt.tmp", "crash.pt.tmp", ".checkpoint_1_8.pt.1a2b3c4d.unfinished"):
        Path(name).write_bytes(b"part")
    Path("notes.tmp").touch()
    recover_last_checkpoint(attack.folder)
    assert snapshot(attack.folder).keys() == before.keys() | {"notes.tmp"}
    attack.outcomes.append("handled")


class FakeTrainer:
    """What `resume` needs of fairseq's trainer."""

    def __init__(self, suffix: str = "") -> None:
        self.checkpoint_suffix = suffix
        self.is_data_parallel_master = True
        self.data_parallel_world_size = 1
        self.scheduler_steps: list[tuple[int, float]] = []
        self.cfg = convert_namespace_to_omegaconf(arguments("--arch", "reluformer"))

    def get_num_updates(self) -> int:
        return 20

    def lr_step(self, epoch: int, val_loss: float) -> None:
        self.scheduler_steps.append((epoch, val_loss))


@pytest.mark.parametrize(
    ("suffix", "changes", "recovers"),
    [
        ("", {}, True),
        ("", {"no_save": True}, True),
        ("-shard0", {}, False),
        ("", {"no_last_checkpoints": True}, False),
        ("", {"reset_optimizer": True}, False),
        ("", {"no_save_optimizer_state": True}, False),
        ("", {"restore_file": "checkpoint_1_4.pt"}, False),
    ],
)
def test_fairseq_resumes_from_the_newest_intact_checkpoint(attack, monkeypatch, suffix, changes, recovers):
    write_folder(attack.folder, FOLDER)
    save_checkpoint_durably(content(6, val_loss=2.5, best=2.5), attack.folder / "checkpoint_1_6.pt")
    last, best = attack.folder / "checkpoint_last.pt", attack.folder / "checkpoint_best.pt"
    last.write_bytes(b"")
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (None, "loaded by fairseq"))
    config = CheckpointConfig(save_dir=str(attack.folder), **changes)
    assert fairseq_hooks.resume(config, FakeTrainer(suffix)) == (None, "loaded by fairseq")
    assert (last.stat().st_size > 0) == recovers
    assert (load_checkpoint_safely(best)["extra_state"].get("best") == 2.5) == recovers
    attack.outcomes.append("handled")


UNLOADABLE = {
    "--arch nonautoregressive_transformer": "the model 'nonautoregressive_transformer'",
    "--arch reluformer --criterion composite_loss --underlying-criterion x": "the criterion 'composite_loss'",
    "--arch reluformer --dataset-impl huffman": "the setting dataset_impl='huffman'",
}
"""Flags that fairseq-train accepts, but whose checkpoints relumt refuses → what it refuses."""


@pytest.mark.parametrize("flags", UNLOADABLE)
def test_a_training_whose_checkpoints_could_not_be_loaded_does_not_begin(attack, monkeypatch, flags):
    trainer, folder = FakeTrainer(), str(attack.folder)
    trainer.cfg = convert_namespace_to_omegaconf(arguments(*flags.split()))
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (None, "loaded by fairseq"))
    refused = attack.calls(lambda: fairseq_hooks.resume(CheckpointConfig(save_dir=folder), trainer))
    assert refused.status == 2 and f"of this training: it rejects {UNLOADABLE[flags]}" in refused.error
    without_saving = CheckpointConfig(save_dir=folder, no_save=True)
    assert fairseq_hooks.resume(without_saving, trainer) == (None, "loaded by fairseq")


def test_only_the_master_copies_to_the_best_checkpoint_and_only_what_the_model_can_load(attack, monkeypatch):
    save_checkpoint_durably(content(6, val_loss=2.5, best=2.5), attack.folder / "checkpoint_last.pt")
    before = snapshot(attack.folder)
    config, trainer = CheckpointConfig(save_dir=str(attack.folder)), FakeTrainer()

    def fail(*_, **__):
        raise RuntimeError("Cannot load model parameters from checkpoint")

    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", fail)
    with pytest.raises(RuntimeError):
        fairseq_hooks.resume(config, trainer)
    trainer.is_data_parallel_master = False
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (None, "loaded by fairseq"))
    fairseq_hooks.resume(config, trainer)
    assert snapshot(attack.folder) == before
    attack.outcomes.append("handled")


@pytest.mark.parametrize(
    ("position", "loss", "changes", "steps"),
    [
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {}, [(2, 2.5)]),  # killed after saving the end of epoch 2
        ({"epoch": 3, "iterations_in_epoch": 7}, 2.5, {}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, None, {}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {"reset_lr_scheduler": True}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {"reset_dataloader": True}, []),
    ],
)
def test_the_scheduler_learns_the_loss_of_an_epoch_that_ended(attack, monkeypatch, position, loss, changes, steps):
    write_folder(attack.folder, FOLDER)
    extra_state = {"train_iterator": position, "val_loss": loss}
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (extra_state, "epochs"))
    trainer = FakeTrainer()
    config = CheckpointConfig(save_dir=str(attack.folder), **changes)
    assert fairseq_hooks.resume(config, trainer) == (extra_state, "epochs")
    assert trainer.scheduler_steps == steps
    attack.outcomes.append("handled")


def test_a_new_schedule_does_not_learn_the_loss_of_the_pretraining(attack):
    """reduce_lr_on_plateau would divide the learning rate by 10, since no epoch reaches that loss."""
    pretrained = write_checkpoint(attack.folder / "pretrained", "--arch", "reluformer")
    checkpoint = load_checkpoint_safely(pretrained)
    position = {"epoch": 3, "iterations_in_epoch": 0, "version": 2}
    checkpoint["extra_state"] |= {"train_iterator": position, "val_loss": 0.0, "best": 0.0}
    save_checkpoint_durably(checkpoint, pretrained)
    flags = ("--finetune-from-model", str(pretrained), "--lr-scheduler", "reduce_lr_on_plateau")
    training = Training(write_training_data(attack.folder / "data"), attack.folder / "checkpoints", flags)
    assert training.run() == 0, training.output
    assert f"loading pretrained model from {pretrained}" in training.output
    resumed = load_checkpoint_safely(training.folder / "checkpoint_last.pt")
    assert resumed["extra_state"]["train_iterator"]["epoch"] == 2
    assert resumed["last_optimizer_state"]["param_groups"][0]["lr"] == 1e-2
    attack.outcomes.append("handled")


def test_training_does_not_go_on_with_another_model(attack):
    """The parameters of softmax and ReLUFormer have the same names and shapes, so fairseq would load them."""
    data, folder = write_training_data(attack.folder / "data"), attack.folder / "checkpoints"
    assert Training(data, folder, ("--max-update", "2")).run() == 0
    before = snapshot(folder)
    softmax = ("--arch", "mechanism_transformer", "--criterion", "label_smoothed_cross_entropy")
    refused = Training(data, folder, softmax)
    assert refused.run() == 2
    last = folder / "checkpoint_last.pt"
    expected = f"{last}: belongs to another model, with attention at the site 'encoder' relu (now softmax)"
    assert expected in refused.output and "Traceback" not in refused.output
    assert snapshot(folder) == before
    assert Training(data, folder, ("--dropout", "0.2")).run() == 0
    fine_tuned = Training(data, attack.folder / "fine-tuned", (*softmax, "--finetune-from-model", str(last)))
    assert fine_tuned.run() == 0, fine_tuned.output
    reset = Training(data, folder, (*softmax, "--reset-optimizer", "--reset-dataloader"))
    assert reset.run() == 0, reset.output
    attack.outcomes.append("refused")


def test_training_does_not_begin_anew_if_the_checkpoint_to_restore_is_missing(attack, monkeypatch):
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (None, "loaded by fairseq"))

    def resume(restored: str | Path, suffix: str = "", **settings):
        config = CheckpointConfig(save_dir=str(attack.folder / "new"), restore_file=str(restored), **settings)
        return fairseq_hooks.resume(config, FakeTrainer(suffix))

    missing = attack.folder / "checkpoint_best.pt"
    refused = attack.calls(lambda: resume(missing))
    assert refused.status == 2 and f"--restore-file {missing}: no such file" in refused.error
    misspelled = attack.folder / "new" / "checkpoint5O.pt"
    assert f"{misspelled}: no such file" in attack.calls(lambda: resume(misspelled)).error
    once = attack.calls(lambda: resume("checkpoint_last.pt", continue_once=str(missing)))
    assert f"--continue-once {missing}: no such file" in once.error
    assert resume(attack.folder / "new" / "checkpoint_last.pt") == (None, "loaded by fairseq"), "the first start"
    save_checkpoint_durably(content(4), attack.folder / "checkpoint_best-shard0.pt")
    assert resume(missing, "-shard0") == (None, "loaded by fairseq")


def test_a_crash_is_no_checkpoint(attack):
    """fairseq writes crash.pt when a step fails; it says nothing about the position in the data."""
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"crash.pt": 9, "checkpoint_average_5.pt": 9})
    assert not has_checkpoints(attack.folder) and count_updates(attack.folder) == 0
    assert "no checkpoint" in attack.reads(best_checkpoint, attack.folder)
    assert "found 0" in attack.reads(averaged_checkpoint, attack.folder, 1)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint_average_5.pt", "crash.pt"]


def test_a_damaged_average_is_written_again(attack):
    checkpoints = attack.folder / "checkpoints"
    write_folder(checkpoints, {"checkpoint_1_2.pt": 2, "checkpoint_1_4.pt": 4})
    average = averaged_checkpoint(attack.folder, 2)
    good = load_checkpoint_safely(average)["model"]
    average.write_bytes(average.read_bytes()[:-1])
    assert are_equal(load_checkpoint_safely(averaged_checkpoint(attack.folder, 2))["model"], good)
    attack.outcomes.append("handled")


@pytest.mark.slow
def test_fairseq_train_resumes_or_refuses_in_one_line(attack):
    """fairseq-train --user-dir relumt without the scripts."""
    data, folder = write_training_data(attack.folder / "data"), attack.folder / "saved"
    command = [sys.executable, "-P", "-m", "fairseq_cli.train", data, "--user-dir", ROOT / "relumt", *SMALL, *FLAGS]
    command += ["--save-dir", folder, "--max-update"]
    attack.process([*command, 6], allow_changes=True)
    last = folder / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:66_000])
    resumed = attack.process([*command, 9], allow_changes=True)
    assert f"{last} is damaged; resuming from the newest intact checkpoint, checkpoint_" in resumed.stderr
    assert "@ 6 updates" in resumed.stdout
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:4097])
    before = snapshot(folder)
    refused = attack.process([*command, 12], allow_changes=True)
    assert refused.status == 2 and "no other checkpoint in its folder is intact" in refused.error
    assert snapshot(folder) == before
