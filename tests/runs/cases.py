"""What the tests of runs are made from: a data-bin and a checkpoint that look like the real ones from outside."""

import json
from pathlib import Path

import torch

from relumt.runs.environment import Device
from relumt.runs.plan import Plan

CPU = Device("cpu", "x86_64", 1, "fp32")


def write_data_bin(folder: Path, symbols=("a@@", "b", "c"), record: dict | None = None) -> Path:
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
        for subset in ("train", "valid", "test"):
            (folder / f"{subset}.de-en.{language}.idx").touch()
    if record is not None:
        (folder / "prepare.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def leave_checkpoint(plan: Plan, name: str = "checkpoint_best.pt", updates: int = 6) -> Path:
    plan.checkpoints.mkdir(parents=True, exist_ok=True)
    history = [{"num_updates": updates}]
    state = {"model": {"weight": torch.zeros(2)}, "cfg": None, "args": None, "optimizer_history": history}
    torch.save(state, plan.checkpoints / name)
    return plan.checkpoints / name
