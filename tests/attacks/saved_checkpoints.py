"""Small checkpoints to attack."""

from argparse import Namespace
from pathlib import Path

import torch

from relumt.plugin.checkpoints.recovery import save_checkpoint_durably

SETTINGS = {"model": Namespace(arch="reluformer"), "task": {"_name": "translation"}}

FOLDER = {
    "checkpoint_1_2.pt": 2,
    "checkpoint_1_4.pt": 4,
    "checkpoint_best.pt": 4,
    "checkpoint_1_6.pt": 6,
    "checkpoint_last.pt": 6,
    "checkpoint_average_5.pt": 9,
    "crash.pt": 9,
}
"""Checkpoints of a run → number of updates."""


def content(updates: int = 6, **extra_state: float | None) -> dict:
    generator = torch.Generator().manual_seed(updates)
    model = {f"weight{number}": torch.randn(30, 20, generator=generator) for number in range(8)}
    return {
        "model": model,
        "cfg": SETTINGS,
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": 1}, **extra_state},
        "last_optimizer_state": {"state": {}},
    }


def are_equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def write_folder(folder: Path, updates: dict[str, int]) -> None:
    for name, count in updates.items():
        save_checkpoint_durably(content(count), folder / name)
