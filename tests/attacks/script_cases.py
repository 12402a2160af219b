"""A stand-in for fairseq-train that waits, for the scripts that start it."""

import time
from pathlib import Path

from tests.attacks.attack import ROOT
from tests.runs.cases import write_configs, write_data_bin

STARTED = "started"
"""File with the process ID of the waiting command, in the working folder."""

WAIT = f"import os, pathlib, time; pathlib.Path({STARTED!r}).write_text(str(os.getpid())); time.sleep(300)\n"


def waiting_training(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of a training that waits, and its environment; `folder` is for what it needs."""
    write_data_bin(folder / "bin" / "small")
    write_configs(folder / "configs")
    (folder / "fairseq_cli").mkdir()
    (folder / "fairseq_cli" / "__init__.py").touch()
    (folder / "fairseq_cli" / "train.py").write_text(WAIT)
    settings = {"PYTHONPATH": str(folder), "CONFIGS": str(folder / "configs"), "CUDA_VISIBLE_DEVICES": ""}
    return [str(ROOT / "scripts" / "train.sh"), str(folder / "bin" / "small"), "stock"], settings


def wait_until_started(folder: Path) -> int:
    """Wait until the command waits, and return its process ID."""
    end = time.monotonic() + 60
    while not (folder / STARTED).exists() or not (folder / STARTED).read_text():
        assert time.monotonic() < end, "the command did not start"
        time.sleep(0.02)
    return int((folder / STARTED).read_text())
