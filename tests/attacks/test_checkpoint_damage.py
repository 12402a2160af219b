"""Damaged checkpoints: truncated, overwritten and zeroed anywhere, in relumt's commands and fairseq's own loading."""

import random
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from relumt.plugin.checkpoints.folder import find_damage
from relumt.plugin.checkpoints.loading import load_checkpoint_safely, open_checkpoint_safely
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from tests.attacks.saved_checkpoints import FOLDER, are_equal, content, write_folder
from tests.plugin.model.build import write_checkpoint

pytestmark = pytest.mark.attack("checkpoints")


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


@pytest.mark.parametrize("is_sealed", [True, False], ids=["relumt's", "stock fairseq's"])
def test_damage_is_refused_or_changes_no_tensor(attack, is_sealed):
    """Bytes that nobody reads, such as padding, have no checksum in stock fairseq's checkpoints."""
    path, expected = Path("checkpoint_last.pt"), content()
    save_checkpoint_durably(expected, path) if is_sealed else torch.save(expected, path)
    good, refused = path.read_bytes(), 0
    for seed in range(240):
        bad = damage(good, seed)
        path.write_bytes(bad)
        if attack.reads(load_checkpoint_safely, path):
            refused += 1
        else:
            assert are_equal(load_checkpoint_safely(path)["model"], expected["model"]), f"seed {seed} changed the model"
            assert bad == good or not is_sealed, f"seed {seed} was loaded"
    assert refused > 180
    for length in [*range(0, len(good), 2111), *range(len(good) - 120, len(good))]:
        path.write_bytes(good[:length])
        assert find_damage(path), f"{length} of {len(good)} bytes passed"


def test_a_record_that_pytorch_would_take_for_an_empty_one_is_refused(attack):
    torch.save(content(), "good.pt")
    with zipfile.ZipFile("good.pt") as good, zipfile.ZipFile("odd.pt", "w") as odd:
        for record in good.infolist():
            entry = zipfile.ZipInfo(record.filename)
            entry.external_attr = 0x10 if record.filename.endswith("data/0") else 0
            odd.writestr(entry, good.read(record))
    assert "a record has the attribute of a folder" in attack.reads(load_checkpoint_safely, "odd.pt")


def test_commands_and_fairseq_name_the_intact_checkpoints(attack, capfd):
    """fairseq-generate and --finetune-from-model load with `load_model_ensemble`."""
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
    ended = attack.calls(lambda: load_model_ensemble([str(bad)]))
    assert ended.status == 2 and "intact in its folder: checkpoint_last.pt" in ended.error


@pytest.mark.slow
def test_stock_fairseq_reads_sealed_checkpoints(attack):
    """Its own function, in a process without relumt."""
    path = write_checkpoint(attack.folder / "model", "--arch", "transformer")
    assert find_damage(path) == "" and b"sha256:" in path.read_bytes()[-100:]
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
