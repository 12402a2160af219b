"""Damaged checkpoints: truncated, overwritten and zeroed anywhere, in relumt's commands and fairseq's own loading."""

import io
import random
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

import relumt
from relumt.checkpoints.integrity import SealingWriter, find_damage
from relumt.checkpoints.loading import load_checkpoint_safely, open_checkpoint_safely
from relumt.checkpoints.recovery import recover_last_checkpoint
from relumt.checkpoints.saving import save_checkpoint_durably
from tests.attacks.saved_checkpoints import FOLDER, SETTINGS, are_equal, content, write_folder
from tests.models.build import write_checkpoint

pytestmark = pytest.mark.attack("checkpoints")


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
            assert are_equal(load_checkpoint_safely(path)["model"], expected), f"seed {seed} changed the model"
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


def test_tensors_stay_in_the_file_until_used(attack):
    write_folder(attack.folder, {"checkpoint_last.pt": 6})
    opened = open_checkpoint_safely(attack.folder / "checkpoint_last.pt")
    assert are_equal(opened["model"], content()["model"])
    attack.outcomes.append("handled")
