"""A tiny training in a forked process, the state that it must end in, and small checkpoints."""

import hashlib
import logging
import multiprocessing
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train

from relumt.errors import exit_on_user_error
from relumt.plugin.checkpoints.folder import BEST_CHECKPOINT, LAST_CHECKPOINT, training_checkpoints
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from tests.plugin.model.build import SMALL, write_data_bin

UPDATES = 12
FLAGS = f"""--source-lang de --target-lang en --criterion label_smoothed_cross_entropy
--optimizer adam --lr 1e-2 --batch-size 2 --max-update {UPDATES} --dropout 0.1 --cpu --num-workers 0 --log-format none
--save-interval-updates 3 --keep-interval-updates 2 --no-epoch-checkpoints --update-epoch-batch-itr True""".split()

OPTIMIZER = "FairseqAdam"
"""Class of --optimizer adam, which a checkpoint names."""

COPIES = (BEST_CHECKPOINT, LAST_CHECKPOINT)
"""Checkpoints that fairseq copies, in this order, from the numbered one that it saves."""


@dataclass(frozen=True)
class Training:
    """A training in a folder of checkpoints, with `flags` beyond FLAGS."""

    data: Path
    folder: Path
    flags: tuple[str, ...] = ()

    def run(self, prepare: Callable[[], None] = lambda: None, kill_after: float | None = None) -> int:
        """Train in a forked process, after `prepare` in it; return its exit status, -9 if it was killed."""
        return run_forked(lambda: self._train(prepare), kill_after)

    def _train(self, prepare: Callable[[], None]) -> None:
        with open(self.folder.with_suffix(".log"), "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)
        for name in ("fairseq", "relumt"):  # other tests silence them
            logging.getLogger(name).setLevel(logging.NOTSET)
        prepare()
        flags = [str(self.data), "--arch", "reluformer", *SMALL, *FLAGS, *self.flags, "--save-dir", str(self.folder)]
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags))
        with exit_on_user_error():  # as relumt.tasks.user_dir does
            fairseq_train(config)

    @property
    def output(self) -> str:
        """What all processes printed."""
        return self.folder.with_suffix(".log").read_text()

    def updates(self) -> list[int]:
        """Return the numbers of updates of all checkpoints, which must all be intact and load."""
        checkpoints = [load_checkpoint_safely(path) for path in training_checkpoints(self.folder)]
        return [checkpoint["optimizer_history"][-1]["num_updates"] for checkpoint in checkpoints]

    def unfinished(self) -> list[str]:
        """Return the names of files that are no checkpoints."""
        return [path.name for path in self.folder.glob("*") if path.suffix != ".pt"]

    def state(self) -> dict[str, str]:
        """Return the hash of the training state in the best and the last checkpoint."""
        return {name: hash_training_state(self.folder / name) for name in COPIES}


def run_forked(function: Callable[[], object], kill_after: float | None = None) -> int:
    """Call a function in a forked process, and kill that after some seconds; return its exit status, -9 if killed."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    process.join(120)
    assert process.exitcode is not None, "hangs"
    return process.exitcode


def write_training_data(folder: Path) -> Path:
    """Write the data-bin to train on; return its path."""
    for subset, size in (("train", 20), ("valid", 4)):
        write_data_bin(folder, [(4 + number % 3, 3 + number % 4) for number in range(size)], subset)
    return folder


def hash_training_state(path: Path) -> str:
    """Return the SHA-256 of everything in a checkpoint that decides how training goes on.

    That is the weights, the states of the optimizer and the learning rate's schedule, the number of updates, the
    position in the data and the best validation loss. Speeds and times are left out.
    """
    checkpoint = load_checkpoint_safely(path)
    extra_state = checkpoint["extra_state"]
    optimizer = (checkpoint["last_optimizer_state"], checkpoint["optimizer_history"][-1])
    state = [checkpoint["model"], *optimizer, extra_state["train_iterator"], extra_state["best"]]
    sha = hashlib.sha256()
    _update(sha, state)
    return sha.hexdigest()


def _update(sha: Any, value: Any) -> None:
    """Hash a value of nested dictionaries, lists, tensors and numbers."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            sha.update(f"{key!r}:".encode())
            _update(sha, value[key])
    elif isinstance(value, list | tuple):
        sha.update(f"{len(value)} values".encode())
        for item in value:
            _update(sha, item)
    elif isinstance(value, torch.Tensor):
        sha.update(f"{value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    else:
        sha.update(repr(value).encode())


def content(updates: int, **extra_state: float | None) -> dict[str, Any]:
    """Return the content of a small checkpoint after so many updates."""
    generator = torch.Generator().manual_seed(updates)
    return {
        "model": {f"weight{number}": torch.randn(30, 20, generator=generator) for number in range(8)},
        "cfg": {"model": Namespace(arch="reluformer"), "task": {"_name": "translation"}},
        "optimizer_history": [{"num_updates": updates, "optimizer_name": OPTIMIZER}],
        "extra_state": {"train_iterator": {"epoch": 1}, **extra_state},
        "last_optimizer_state": {"state": {}},
    }


def save(path: Path, updates: int, **extra_state: float | None) -> None:
    """Save a small checkpoint."""
    save_checkpoint_durably(content(updates, **extra_state), path)


def weights(path: Path) -> dict[str, bytes]:
    """Return the bytes of the tensors of a checkpoint's model."""
    return bytes_of(load_checkpoint_safely(path)["model"])


def bytes_of(model: dict[str, torch.Tensor]) -> dict[str, bytes]:
    """Return the bytes of the tensors of a model."""
    return {name: tensor.numpy().tobytes() for name, tensor in model.items()}
