"""What fairseq gets when it loads a checkpoint through relumt's replacement, and what it resumes from."""

import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.logging import metrics

from relumt.errors import AttemptFailedError, UserError
from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.fairseq_hooks import load_vetted, resume
from relumt.plugin.checkpoints.folder import find_damage
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import recover_last_checkpoint, save_checkpoint_durably
from relumt.plugin.model.mechanism_transformer import MechanismTransformer
from tests.plugin.model.build import trainer, write_checkpoint, write_data_bin


@pytest.mark.parametrize("flag", ["eval_bleu", "eval_bleu_print_samples"])
def test_the_command_line_decides_about_bleu_in_validation(checkpoint, flag):
    task = load_vetted(checkpoint)["cfg"]["task"]
    assert not task[flag] and task["eval_bleu_args"] == "{}", "a checkpoint's own settings are dropped"
    assert load_vetted(checkpoint, {flag: True})["cfg"]["task"][flag]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    flags = ("--eval-bleu", "--eval-bleu-args", '{"beam": 7}', "--attention", "relu")
    return str(write_checkpoint(folder, *flags))


def test_from_pretrained_translates(checkpoint, tmp_path):
    """With fairseq's defaults for all that a vetted checkpoint does not keep."""
    write_data_bin(tmp_path / "bin", [(4, 3)])
    folder, name = Path(checkpoint).parent, Path(checkpoint).name
    hub = MechanismTransformer.from_pretrained(str(folder), name, str(tmp_path / "bin"))
    assert set(hub.translate("w1 w2 w3", beam=2, max_len_b=4).split()) <= {f"w{n}" for n in range(20)} | {"<unk>"}


@pytest.mark.parametrize("flags", [[], ["--reset-meters"]])
def test_resuming_goes_on_counting_for_patience(tmp_path, monkeypatch, flags):
    def should_stop_early():
        """fairseq-train's function."""

    monkeypatch.setattr(sys.modules["__main__"], "should_stop_early", should_stop_early, raising=False)
    should_stop_early.best, should_stop_early.num_runs = 2.5, 3
    arch = ("--arch", "mechanism_transformer")
    trained = trainer(tmp_path, *arch)
    trained.set_num_updates(1)
    trained.consolidate_optimizer()
    state = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 1}}
    trained.save_checkpoint(str(tmp_path / "checkpoint_last.pt"), state)
    vars(should_stop_early).clear()
    resumed = trainer(tmp_path, *arch, *flags)
    monkeypatch.setattr(resumed, "get_train_iterator", lambda **_: Namespace(load_state_dict=lambda _: None, epoch=1))
    resume(resumed.cfg.checkpoint, resumed)
    assert vars(should_stop_early) == ({} if flags else {"best": 2.5, "num_runs": 3})


@pytest.fixture
def folder(tmp_path):
    """Return a folder with checkpoints of 2 to 8 updates, whose last one is not the newest, and an average."""
    for updates, name in ((1, "1_2"), (2, "1_4"), (3, "1_6"), (4, "1_8"), (3, "last"), (9, "average_5")):
        history = [{"num_updates": 2 * updates}]
        content = {"model": {"w": torch.full((500,), float(updates))}, "ones": torch.ones(500)}
        content["optimizer_history"] = history
        save_checkpoint_durably(content, tmp_path / f"checkpoint_{name}.pt")
        os.utime(tmp_path / f"checkpoint_{name}.pt", times=(10**10 - updates, 10**10 - updates))  # the clock went back
    (tmp_path / ".checkpoint_1_9.pt.123.unfinished").touch()
    return tmp_path


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "zeroed": lambda path: path.write_bytes(path.read_bytes().replace(torch.ones(9).numpy().tobytes(), bytes(36))),
    "empty": lambda path: path.write_bytes(b""),
    "directory at a negative offset": lambda path: path.write_bytes(path.read_bytes()[-200:]),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("damaged", "expected"),
    [((), 3), (("last",), 4), (("last", "1_8"), 3), (("last", "1_8", "1_6"), 2), (("1_8",), 3)],
)
def test_training_resumes_from_the_newest_intact_checkpoint(folder, capsys, damage, damaged, expected):
    for name in damaged:
        DAMAGE[damage](folder / f"checkpoint_{name}.pt")
    recover_last_checkpoint(folder)
    assert load_checkpoint_safely(folder / "checkpoint_last.pt")["model"]["w"][0] == expected
    assert capsys.readouterr().err.count("resuming from the newest intact checkpoint") == ("last" in damaged)
    assert not list(folder.glob(".*"))


def test_nothing_is_deleted_if_no_checkpoint_is_intact(folder):
    for path in folder.glob("checkpoint*.pt"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="is damaged, and no other checkpoint in its folder is intact"):
        recover_last_checkpoint(folder)
    assert len(list(folder.glob("checkpoint*.pt"))) == 6 and "truncated" in find_damage(path)


def test_a_fault_while_saving_leaves_the_last_checkpoint(folder, monkeypatch):
    path = folder / "checkpoint_last.pt"
    before = path.read_bytes()
    monkeypatch.setattr("relumt.files.sync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(AttemptFailedError, match=r"checkpoint_last.pt: could not be saved \(No space left\)"):
        checkpoint_utils.torch_persistent_save({"model": {}}, str(path))
    with pytest.raises(AttemptFailedError, match="the checkpoints saved before are intact"):
        checkpoint_utils.PathManager.copy(str(folder / "checkpoint_1_2.pt"), str(path), overwrite=True)
    assert path.read_bytes() == before


class FakeTrainer:
    """What `resume` needs of fairseq's trainer."""

    def __init__(self, suffix=""):
        self.checkpoint_suffix, self.is_data_parallel_master, self.data_parallel_world_size = suffix, True, 1
        self.scheduler_steps = []

    def get_num_updates(self):
        return 20

    def lr_step(self, epoch, val_loss):
        self.scheduler_steps.append((epoch, val_loss))


@pytest.mark.parametrize(
    ("suffix", "settings"), [("", {}), ("-shard0", {}), ("", {"no_last_checkpoints": True})], ids=str
)
def test_only_a_missing_last_checkpoint_of_one_file_is_replaced(folder, monkeypatch, suffix, settings):
    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", lambda *_, **__: (None, "loaded by fairseq"))
    last = folder / "checkpoint_last.pt"
    last.unlink()
    resumed = resume(CheckpointConfig(save_dir=str(folder), **settings), FakeTrainer(suffix))
    assert resumed == (None, "loaded by fairseq")
    assert last.exists() == (not suffix and not settings)


@pytest.mark.parametrize(
    ("position", "loss", "settings", "steps"),
    [
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {}, [(2, 2.5)]),
        ({"epoch": 3, "iterations_in_epoch": 4}, 2.5, {}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, None, {}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {"reset_lr_scheduler": True}, []),
        ({"epoch": 3, "iterations_in_epoch": 0}, 2.5, {"reset_dataloader": True}, []),
    ],
)
def test_the_scheduler_learns_the_loss_of_an_epoch_and_the_clock_runs_on(
    folder, monkeypatch, position, loss, settings, steps
):
    metrics.log_start_time("wall")
    started = metrics.get_meter("default", "wall").start_time
    extra_state = {"train_iterator": position, "val_loss": loss}

    def load(*_, **__):
        metrics.load_state_dict(metrics.state_dict())  # as fairseq does: the clock stands still
        return extra_state, "epochs"

    monkeypatch.setattr(fairseq_hooks, "load_checkpoint", load)
    fake = FakeTrainer()
    assert resume(CheckpointConfig(save_dir=str(folder), **settings), fake) == (extra_state, "epochs")
    assert fake.scheduler_steps == steps
    assert metrics.get_meter("default", "wall").start_time == started
    metrics.reset()


def test_a_missing_file_to_restore_is_named(tmp_path, capsys):
    started = trainer(tmp_path, "--arch", "mechanism_transformer", "--restore-file", "checkpoint5O.pt")
    started.get_train_iterator = lambda **_: Namespace(epoch=1)
    resume(started.cfg.checkpoint, started)
    assert "--restore-file checkpoint5O.pt: no such file; training starts from the" in capsys.readouterr().err
