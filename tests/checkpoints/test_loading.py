"""Checkpoints that contain code are rejected, and fairseq's own are read."""

import os
import pickle
from argparse import Namespace

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
