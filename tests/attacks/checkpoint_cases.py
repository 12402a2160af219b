"""How the attacks on checkpoints write them and check that they are refused."""

from pathlib import Path
from typing import Any

import torch

from relumt.checkpoints.vetting import vet_checkpoint


def refuse(attack, content: dict[str, Any], part: str = "") -> None:
    """Check that a checkpoint with these contents is refused in one line that names the file."""
    message = attack.reads(vet_checkpoint, content, "odd.pt")
    assert message.startswith("odd.pt: ") and part in message
    assert len(message) < 600


def saved(content: dict[str, Any]) -> Path:
    path = Path("checkpoint_last.pt").absolute()
    torch.save(content, path)
    return path
