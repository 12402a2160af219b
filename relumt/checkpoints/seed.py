"""The seed in a checkpoint, without PyTorch."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any


def training_seed(checkpoint: Mapping[str, Any]) -> int | None:
    """Return the seed that a checkpoint was trained with, None if it does not say."""
    args, config = checkpoint.get("args"), checkpoint.get("cfg")
    if args is None and isinstance(config, Mapping):
        args = config.get("common")
    settings = vars(args) if isinstance(args, Namespace) else args
    seed = settings.get("seed") if isinstance(settings, Mapping) else None
    return seed if type(seed) is int else None
