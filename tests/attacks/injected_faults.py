"""A tiny training in a forked process, and faults that are injected into its saving of checkpoints."""

import logging
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train

from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.checkpoints.folder import BEST_CHECKPOINT, LAST_CHECKPOINT, training_checkpoints
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.plugin.checkpoints.recovery import SealingWriter
from tests.plugin.model.build import SMALL, write_data_bin

UPDATES = 12
FLAGS = f"""--arch reluformer --source-lang de --target-lang en --criterion label_smoothed_cross_entropy
--optimizer adam --lr 1e-2 --batch-size 2 --max-update {UPDATES} --dropout 0.1 --cpu --num-workers 0 --log-format none
--save-interval-updates 3 --keep-interval-updates 2 --no-epoch-checkpoints --update-epoch-batch-itr True""".split()

COPIES = (BEST_CHECKPOINT, LAST_CHECKPOINT)
"""Checkpoints that fairseq copies, in this order, from the numbered one that it saves."""

STEPS = {"fsync": (os, "fsync"), "rename": (os, "replace"), "copy": (shutil, "copyfile")}
"""Step of saving → the function that performs it. The step "write" is a write to the file of a checkpoint."""


@dataclass
class Fault:
    """Makes a call fail after `left` successful ones, and the later calls if it is `permanent`."""

    left: int
    permanent: bool
    action: Callable[[], None]

    def pass_or_fail(self) -> None:
        """Count a call, and fail if it is its turn."""
        self.left -= 1
        if self.left == -1 or (self.left < 0 and self.permanent):
            self.action()


class FaultyFile:
    """A file in which a write can fail after half of its data."""

    def __init__(self, file: BinaryIO, fault: Fault) -> None:
        self.file = file
        self.fault = fault

    def write(self, data: bytes | memoryview) -> int:
        written = self.file.write(data[: len(data) // 2])
        self.fault.pass_or_fail()
        return written + self.file.write(data[len(data) // 2 :])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def inject(step: str, fault: Fault) -> None:
    """Let a step of saving fail in this process."""
    if step == "write":
        initialize = SealingWriter.__init__
        SealingWriter.__init__ = lambda self, file: initialize(self, FaultyFile(file, fault))
        return
    owner, name = STEPS[step]
    function = getattr(owner, name)

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        fault.pass_or_fail()
        return function(*arguments, **keywords)

    setattr(owner, name, faulty)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(code: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(code, os.strerror(code))

    return fail


@dataclass(frozen=True)
class Undisturbed:
    """A training without faults.

    Attributes:
        hashes: of the checkpoints in COPIES, by name.
        calls: how often it performs each step of saving.
        seconds: how long it takes.
        size: of a checkpoint, in bytes.
    """

    hashes: dict[str, str]
    calls: dict[str, int]
    seconds: float
    size: int


@dataclass(frozen=True)
class Training:
    """A training in a folder of checkpoints, with `flags` beyond FLAGS."""

    data: Path
    folder: Path
    flags: tuple[str, ...] = ()

    def run(self, prepare: Callable[[], None] = lambda: None, kill_after: float | None = None) -> int | None:
        """Train in a forked process, after `prepare` in it; return its exit status, -9 if it was killed."""
        process = multiprocessing.get_context("fork").Process(target=self._train, args=(prepare,))
        process.start()
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        process.join(120)
        assert process.exitcode is not None, "hangs"
        return process.exitcode

    def _train(self, prepare: Callable[[], None]) -> None:
        with open(self.folder.with_suffix(".log"), "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)
        for name in ("fairseq", "relumt"):  # other tests silence them
            logging.getLogger(name).setLevel(logging.NOTSET)
        fairseq_hooks.PAUSES = (0, 0)
        prepare()
        flags = [str(self.data), *SMALL, *FLAGS, *self.flags, "--save-dir", str(self.folder)]
        fairseq_train(convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags)))

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


def write_training_data(folder: Path) -> Path:
    """Write the data-bin to train on; return its path."""
    for subset, size in (("train", 20), ("valid", 4)):
        write_data_bin(folder, [(4 + number % 3, 3 + number % 4) for number in range(size)], subset)
    return folder
