"""Checkpoints shared by the tests of this folder; building one takes longer than most of what is tested."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.plugin.model.build import write_checkpoint


@pytest.fixture(scope="session")
def checkpoint_with(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes the checkpoint of a new model, once for each combination of flags."""
    return cache(lambda *flags: write_checkpoint(tmp_path_factory.mktemp("model"), *flags))
