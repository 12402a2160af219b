"""What the tests of runs are made from: a data-bin and a checkpoint that look like the real ones from outside."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from relumt.runs.environment import Device
from relumt.runs.run_config import Plan

CPU = Device("cpu", "x86_64", 1, "fp32")

LOG = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 1,000 (num. trained: 1,000)
2026-01-01 10:00:01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)
2026-01-01 10:00:11 | INFO | valid | {"epoch": 1, "valid_loss": "8.5"}
2026-01-01 10:00:11 | INFO | train | {"epoch": 1, "train_wps": "640.2", "train_num_updates": "6"}
"""


def write_data_bin(folder: Path, symbols=("a@@", "b", "c"), record: dict | None = None) -> Path:
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
        for subset in ("train", "valid", "test"):
            (folder / f"{subset}.de-en.{language}.idx").touch()
    if record is not None:
        (folder / "prepare.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def write_dataset(configs: Path, name: str, **settings: str | int) -> None:
    """Write configs/datasets/NAME.toml; `settings` are added to the flags, or replace them."""
    flags = {"train": "--lr 1e-3 --dropout 0.3 --max-epoch 2", "generate": "--beam 5"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in (flags | settings).items()]
    (configs / "datasets" / f"{name}.toml").write_text("".join(lines), encoding="utf-8")


def leave_checkpoint(plan: Plan, name: str = "checkpoint_best.pt", updates: int = 6) -> Path:
    plan.checkpoints.mkdir(parents=True, exist_ok=True)
    history = [{"num_updates": updates}]
    state = {"model": {"weight": torch.zeros(2)}, "cfg": None, "args": None, "optimizer_history": history}
    torch.save(state, plan.checkpoints / name)
    return plan.checkpoints / name


def train(plan: Plan, step: Callable) -> None:
    step("start")
    leave_checkpoint(plan)
    (plan.folder / "train.log").write_text(LOG)
    step("trained")
