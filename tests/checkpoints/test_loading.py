"""Checkpoints that contain code are rejected, and fairseq's own are read."""

import os
import pickle
from argparse import Namespace

import numpy as np
import pytest
import torch

from relumt.checkpoints.loading import load_checkpoint_safely
from relumt.errors import UserError

SETTINGS = {"model": Namespace(arch="reluformer"), "task": {"_name": "translation"}}


class Payload:
    def __reduce__(self):
        return os.mkdir, ("created-by-the-checkpoint",)


def save_checkpoint(path, **content):
    torch.save({"model": {}, **content}, path)
    return path


def test_a_namespace_as_fairseq_stores_it_is_read(tmp_path):
    path = save_checkpoint(tmp_path / "good.pt", cfg=SETTINGS)
    assert load_checkpoint_safely(path)["cfg"]["model"].arch == "reluformer"


def test_statistics_of_bleu_are_read(tmp_path):
    """fairseq's translation task stores them as arrays with --eval-bleu."""
    state = {"train_iterator": {"epoch": 1}, "metrics": {"valid": [(0, "_bleu_counts", "SumMeter", {})]}}
    for dtype in ("int64", "float64"):
        state["metrics"]["valid"][0][3]["sum"] = np.arange(4, dtype=dtype)
        path = save_checkpoint(tmp_path / "bleu.pt", cfg=SETTINGS, extra_state=state)
        loaded = load_checkpoint_safely(path)["extra_state"]["metrics"]["valid"][0][3]["sum"]
        assert loaded.tolist() == [0, 1, 2, 3] and loaded.dtype == dtype
    state["metrics"]["valid"][0][3]["sum"] = np.array([Payload()])
    with pytest.raises(UserError, match=r"bleu\.pt: rejected, it contains code \("):
        load_checkpoint_safely(save_checkpoint(path, cfg=SETTINGS, extra_state=state))


def test_pickled_code_is_rejected_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pt"
    for write, message in (
        (lambda: save_checkpoint(path, extra=Payload()), "rejected, it contains code"),
        (lambda: path.write_bytes(pickle.dumps(Payload())), "does not begin like a checkpoint"),
        (lambda: torch.save(Payload(), path, _use_new_zipfile_serialization=False), "in the format of PyTorch before"),
    ):
        write()
        with pytest.raises(UserError, match=rf"evil\.pt: .*{message}"):
            load_checkpoint_safely(path)
    assert not (tmp_path / "created-by-the-checkpoint").exists()


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.pt: no such checkpoint"):
        load_checkpoint_safely(tmp_path / "gone.pt")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(UserError, match=r"empty\.pt: not a readable checkpoint"):
        load_checkpoint_safely(tmp_path / "empty.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UserError, match=r"list\.pt: not a fairseq checkpoint"):
        load_checkpoint_safely(tmp_path / "list.pt")
