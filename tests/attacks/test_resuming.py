"""What `fairseq-train` resumes from, and what it refuses to continue."""

import sys
from pathlib import Path

import pytest
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from tests.attacks.attack import ROOT, snapshot
from tests.attacks.injected_faults import FLAGS, Training, write_training_data
from tests.attacks.saved_checkpoints import FOLDER, content, write_folder
from tests.plugin.model.build import SMALL, arguments, write_checkpoint

pytestmark = pytest.mark.attack("checkpoints")


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


def test_the_clock_of_the_log_runs_after_resuming_within_an_epoch(attack, monkeypatch):
    """fairseq would log "wall": 0 until the end, and run.json would leave out that time."""
    metrics.log_start_time("wall")
    started = metrics.get_meter("default", "wall").start_time

    def load_meters(*_, **__):
        """Do what fairseq does with the meters of a checkpoint within an epoch."""
        metrics.load_state_dict(metrics.state_dict())
        assert metrics.get_meter("default", "wall").elapsed_time == 0
        return None, "epochs"

    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", load_meters)
    fairseq_hooks.resume(CheckpointConfig(save_dir=str(attack.folder)), FakeTrainer())
    assert metrics.get_meter("default", "wall").start_time == started
    metrics.reset()
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
    for start in (("--finetune-from-model", str(last)), ("--restore-file", str(last), "--reset-optimizer")):
        merged = Training(data, attack.folder / "merged", (*start, "--share-decoder-input-output-embed"))
        assert merged.run() == 2
        assert f"{last}: has separate embeddings, and --share" in merged.output and "Traceback" not in merged.output
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
