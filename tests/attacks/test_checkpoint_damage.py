"""Damaged checkpoints: truncated, overwritten and zeroed anywhere, in relumt's commands and fairseq's own loading."""

import io
import random
import shutil
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.dataclass.configs import CheckpointConfig

import relumt
from relumt import fairseq_checkpoints
from relumt.checkpoint_integrity import SealingWriter, find_damage
from relumt.checkpoint_recovery import recover_last_checkpoint
from relumt.checkpoint_saving import copy_checkpoint_durably, save_checkpoint_durably
from relumt.checkpoints import load_checkpoint_safely, open_checkpoint_safely
from relumt.runs.run_checkpoints import averaged_checkpoint, best_checkpoint, count_updates, has_checkpoints
from tests.attacks.attack import ROOT, snapshot
from tests.attacks.injected_faults import FLAGS, write_training_data
from tests.models.build import SMALL, write_checkpoint

pytestmark = pytest.mark.attack("checkpoints")

SETTINGS = {"model": Namespace(arch="reluformer"), "task": {"_name": "translation"}}


def content(updates: int = 6) -> dict:
    generator = torch.Generator().manual_seed(updates)
    model = {f"weight{number}": torch.randn(30, 20, generator=generator) for number in range(8)}
    return {
        "model": model,
        "cfg": SETTINGS,
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"state": {}},
    }


def archive(is_sealed: bool) -> bytes:
    """A checkpoint of relumt, or of stock fairseq."""
    file = io.BytesIO()
    if not is_sealed:
        torch.save(content(), file)
        return file.getvalue()
    writer = SealingWriter(file)
    torch.save(content(), writer)
    writer.seal()
    return file.getvalue()


def damage(good: bytes, seed: int) -> bytes:
    """Overwrite, zero, flip, cut, repeat or append bytes at random."""
    generator = random.Random(seed)
    begin = generator.choice((0, len(good) * 3 // 4, len(good) - 1500, len(good) - 100))  # the directory is at the end
    at = generator.randrange(begin, len(good))
    length = min(generator.choice((1, 2, 16, 1000, 4096)), len(good) - at)
    bad = {
        "overwrite": good[:at] + generator.randbytes(length) + good[at + length :],
        "zero": good[:at] + bytes(length) + good[at + length :],
        "flip": good[:at] + bytes([good[at] ^ 1 << generator.randrange(8)]) + good[at + 1 :],
        "cut": good[:at],
        "drop": good[:at] + good[at + length :],
        "repeat": good[:at] + good[at : at + length] + good[at:],
        "append": good + generator.randbytes(length),
    }
    return generator.choice(list(bad.values()))


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("block", range(4))
def test_no_damage_to_a_sealed_checkpoint_passes(attack, block):
    good, path = archive(is_sealed=True), Path("checkpoint_last.pt")
    for seed in range(block * 60, (block + 1) * 60):
        if (bad := damage(good, seed)) != good:
            path.write_bytes(bad)
            assert attack.reads(load_checkpoint_safely, path), f"seed {seed} was loaded"


@pytest.mark.parametrize("block", range(4))
def test_damage_to_a_checkpoint_without_seal_changes_no_tensor(attack, block):
    """Bytes that nobody reads, such as padding, have no checksum in stock fairseq's checkpoints."""
    good, path, expected = archive(is_sealed=False), Path("checkpoint_last.pt"), content()["model"]
    refused = 0
    for seed in range(block * 60, (block + 1) * 60):
        path.write_bytes(damage(good, seed))
        if attack.reads(load_checkpoint_safely, path):
            refused += 1
        else:
            assert equal(load_checkpoint_safely(path)["model"], expected), f"seed {seed} changed the model"
    assert refused > 45


def test_no_truncated_checkpoint_passes(attack):
    for good in (archive(is_sealed=True), archive(is_sealed=False)):
        for length in [*range(0, len(good), 97), *range(len(good) - 120, len(good))]:
            if length != len(good):
                assert find_damage(io.BytesIO(good[:length])), f"{length} of {len(good)} bytes passed"
    path = Path("checkpoint_last.pt")
    for length in (0, 1, 22, 4097, 10_000, len(good) - 1):
        path.write_bytes(good[:length])
        assert "not a readable checkpoint" in attack.reads(load_checkpoint_safely, path)


def test_forged_archives_are_refused(attack):
    """Archives with valid checksums that PyTorch reads in other ways than zipfile, or that would fill the memory."""
    path = Path("checkpoint_last.pt")
    with zipfile.ZipFile(io.BytesIO(archive(is_sealed=False))) as good:
        records = [(record.filename, good.read(record)) for record in good.infolist()]

    def forge(kind: str) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED) as forged:
            for name, data in records:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = 0x10 if kind == "a folder's attributes" and name.endswith("data/0") else 0
                entry.compress_type = forged.compression
                forged.writestr(entry, data)
            if kind == "twice":
                forged.writestr(zipfile.ZipInfo(records[-1][0]), b"other")

    forge("as it was")
    assert attack.reads(load_checkpoint_safely, path) == ""
    forge("compressed")
    assert "a record is compressed" in attack.reads(load_checkpoint_safely, path)
    forge("a folder's attributes")
    assert "a record has the attribute of a folder" in attack.reads(load_checkpoint_safely, path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        forge("twice")
    assert "two records have one name" in attack.reads(load_checkpoint_safely, path)


@pytest.mark.parametrize(
    "other",
    [
        [],
        {},
        {"model": None},
        {"model": {"weight": 1.0}},
        {"model": {1: torch.ones(1)}},
        {"model": {}},
        {"model": {}, "optimizer_history": 5},
        {"model": {}, "cfg": SETTINGS, "optimizer_history": [{"num_updates": "6"}]},
        {"model": {}, "cfg": SETTINGS, "optimizer_history": []},
    ],
    ids=str,
)
def test_archives_of_something_else_are_refused(attack, other):
    save_checkpoint_durably(other, Path("checkpoint_last.pt"))
    assert "checkpoint_last.pt" in attack.reads(recover_last_checkpoint, attack.folder)


def write_folder(folder: Path, updates: dict[str, int]) -> None:
    for name, count in updates.items():
        save_checkpoint_durably(content(count), folder / name)


FOLDER = {
    "checkpoint_1_2.pt": 2,
    "checkpoint_1_4.pt": 4,
    "checkpoint_best.pt": 4,
    "checkpoint_1_6.pt": 6,
    "checkpoint_last.pt": 6,
    "checkpoint_average_5.pt": 9,
    "crash.pt": 9,
}


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
    assert equal(load_checkpoint_safely("checkpoint_last.pt")["model"], content(chosen)["model"])
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


def test_leftovers_of_killed_processes_are_removed(attack):
    write_folder(attack.folder, FOLDER)
    before = snapshot(attack.folder)
    for name in ("checkpoint_1_8.pt.tmp", "crash.pt.tmp", ".checkpoint_1_8.pt.1a2b3c4d.unfinished"):
        Path(name).write_bytes(b"part")
    Path("notes.tmp").touch()
    recover_last_checkpoint(attack.folder)
    assert snapshot(attack.folder).keys() == before.keys() | {"notes.tmp"}
    attack.outcomes.append("handled")


def test_commands_name_the_intact_checkpoints(attack):
    write_folder(attack.folder, FOLDER)
    bad = attack.folder / "checkpoint_best.pt"
    bad.write_bytes(bad.read_bytes()[:-1])
    for command in (
        ["average", bad, "checkpoint_1_4.pt", "--out", "average.pt"],
        ["analyze", bad, "--data", "data-bin", "--out", "out"],
    ):
        error = attack.relumt(*command).error
        assert "not a readable checkpoint" in error and "intact in its folder: checkpoint_last.pt" in error
        assert "crash.pt" not in error and "average_5" not in error


def test_fairseq_refuses_a_damaged_checkpoint(attack, capfd):
    """fairseq-generate and --finetune-from-model load this way."""
    relumt.register()
    path = write_checkpoint(attack.folder / "model")
    shutil.copy(path, path.with_name("checkpoint_last.pt"))
    good = path.read_bytes()
    path.write_bytes(good[:9000] + bytes(100) + good[9100:])
    with pytest.raises(SystemExit) as stopped:
        load_model_ensemble([str(path)])
    assert stopped.value.code == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and "intact in its folder: checkpoint_last.pt" in error
    attack.outcomes.append("refused")


class FakeTrainer:
    """What `resume` needs of fairseq's trainer."""

    def __init__(self, suffix: str = "") -> None:
        self.checkpoint_suffix = suffix
        self.is_data_parallel_master = True
        self.data_parallel_world_size = 1


@pytest.mark.parametrize(
    ("suffix", "changes", "recovers"),
    [
        ("", {}, True),
        ("", {"no_save": True}, True),
        ("-shard0", {}, False),
        ("", {"no_last_checkpoints": True}, False),
        ("", {"restore_file": "checkpoint_1_4.pt"}, False),
    ],
)
def test_fairseq_resumes_from_the_newest_intact_checkpoint(attack, monkeypatch, suffix, changes, recovers):
    write_folder(attack.folder, FOLDER)
    last = attack.folder / "checkpoint_last.pt"
    last.write_bytes(b"")
    monkeypatch.setattr(fairseq_checkpoints, "load_checkpoint", lambda *_, **__: "loaded by fairseq")
    config = CheckpointConfig(save_dir=str(attack.folder), **changes)
    assert fairseq_checkpoints.resume(config, FakeTrainer(suffix)) == "loaded by fairseq"
    assert (last.stat().st_size > 0) == recovers
    attack.outcomes.append("handled")


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
    assert equal(load_checkpoint_safely(averaged_checkpoint(attack.folder, 2))["model"], good)
    attack.outcomes.append("handled")


@pytest.mark.slow
def test_stock_fairseq_reads_sealed_checkpoints(attack):
    """Its own function, in a process without relumt."""
    path = write_checkpoint(attack.folder / "model", "--arch", "transformer")
    assert find_damage(path.open("rb")) == "" and b"sha256:" in path.read_bytes()[-100:]
    code = "import argparse, sys, torch; torch.serialization.add_safe_globals([argparse.Namespace])"
    code += "; from fairseq.checkpoint_utils import load_checkpoint_to_cpu; assert 'relumt' not in sys.modules"
    code += "; print(len(load_checkpoint_to_cpu(sys.argv[1])['model']))"
    ended = attack.process([sys.executable, "-c", code, path], env={"PYTHONPATH": ""}, allow_changes=True)
    assert int(ended.stdout.splitlines()[-1]) == len(load_checkpoint_safely(path)["model"])


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


def test_tensors_stay_in_the_file_until_used(attack):
    write_folder(attack.folder, {"checkpoint_last.pt": 6})
    opened = open_checkpoint_safely(attack.folder / "checkpoint_last.pt")
    assert equal(opened["model"], content()["model"])
    attack.outcomes.append("handled")
