"""A checkpoint of another run in a run's folder is neither resumed nor translated, nor does it end the training."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from relumt.runs.evaluation_steps import start_evaluation
from relumt.runs.record import load_record
from relumt.runs.training_steps import start_training
from tests.attacks.attack import snapshot
from tests.runs.cases import train, write_checkpoint


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with torch.serialization.safe_globals([Namespace]):
        content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


FOREIGN = {
    "dropout is 0.2 (run.json: 0.1)": lambda content: setattr(content["cfg"]["model"], "dropout", 0.2),
    "arch is reluformer (run.json: transformer)": lambda content: setattr(
        content["cfg"]["model"], "arch", "reluformer"
    ),
    "seed is 2 (run.json: 1)": lambda content: content["cfg"].update(common={"seed": 2}),
    "was trained with another vocabulary": lambda content: content["model"].update(
        {"encoder.embed_tokens.weight": torch.zeros(99, 512)}
    ),
}


@pytest.mark.parametrize(("message", "change"), FOREIGN.items(), ids=list(FOREIGN))
def test_the_checkpoint_of_another_run_is_refused(config, step, refused, message, change):
    limit = ("--max-update", "6")
    step(start_training, *limit)
    rewrite(write_checkpoint(config, "checkpoint_last.pt"), change)
    before = snapshot(config.folder)
    assert message in refused(start_training, *limit)
    assert snapshot(config.folder) == before and load_record(config.folder).training is None
    (config.checkpoints / "checkpoint_last.pt").unlink()
    train(config, step)
    rewrite(config.checkpoints / "checkpoint_best.pt", change)
    before = snapshot(config.folder)
    assert message in refused(start_evaluation)
    assert snapshot(config.folder) == before


@pytest.mark.parametrize("entry", ["optimizer_history", "extra_state", "last_optimizer_state"])
def test_a_checkpoint_without_training_state_is_translated_but_not_resumed(config, step, refused, entry):
    step(start_training)
    last = write_checkpoint(config, "checkpoint_last.pt")
    rewrite(last, lambda content: content.pop(entry))
    assert f"training cannot resume from it, since it has no {entry}" in refused(start_training)
    last.unlink()
    train(config, step)
    rewrite(config.checkpoints / "checkpoint_best.pt", lambda content: content.pop(entry))
    assert "--path" in step(start_evaluation).result.arguments
