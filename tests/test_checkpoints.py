"""Checkpoints that contain code are rejected, and fairseq's own are read."""

import os
import pickle
from argparse import Namespace

import pytest
import torch

from relumt.checkpoints import load_checkpoint_safely
from relumt.errors import UserError


class Payload:
    def __reduce__(self):
        return os.mkdir, ("created-by-the-checkpoint",)


def save_checkpoint(path, **content):
    torch.save({"model": {}, **content}, path)
    return path


def test_a_namespace_as_fairseq_stores_it_is_read(tmp_path):
    path = save_checkpoint(tmp_path / "good.pt", cfg={"model": Namespace(arch="reluformer", adam_betas="(0.9, 0.98)")})
    assert load_checkpoint_safely(path)["cfg"]["model"].arch == "reluformer"


def test_pickled_code_is_rejected_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (lambda p: save_checkpoint(p, extra=Payload()), lambda p: p.write_bytes(pickle.dumps(Payload()))):
        path = tmp_path / "evil.pt"
        write(path)
        with pytest.raises(UserError, match=r"evil\.pt: rejected, it is damaged or contains code"):
            load_checkpoint_safely(path)
    assert not (tmp_path / "created-by-the-checkpoint").exists()


@pytest.mark.parametrize(
    "config",
    [
        {"cfg": {"model": Namespace(adaptive_softmax_cutoff="[open('x', 'w')]")}},
        {"cfg": {"optimizer": {"adam_betas": "print(1)"}}},
        {"cfg": {"model": {"decoder": {"xformers_att_config": "__import__('os')"}}}},
        {"args": Namespace(adaptive_softmax_cutoff="exit()")},
    ],
    ids=["model", "optimizer", "nested", "old"],
)
def test_code_in_a_setting_is_rejected(tmp_path, config):
    with pytest.raises(UserError, match=r"rejected the setting .*: expected a Python literal, found code"):
        load_checkpoint_safely(save_checkpoint(tmp_path / "evil.pt", **config))


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.pt: no such checkpoint"):
        load_checkpoint_safely(tmp_path / "gone.pt")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(UserError, match=r"empty\.pt: not a readable checkpoint"):
        load_checkpoint_safely(tmp_path / "empty.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UserError, match=r"list\.pt: not a fairseq checkpoint"):
        load_checkpoint_safely(tmp_path / "list.pt")
