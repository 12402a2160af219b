"""Settings of the whole suite."""

import os

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which torch.compile does too

# The first example of a test pays for imports, and CI has two busy cores: no deadline. Same examples every time.
hypothesis.settings.register_profile("relumt", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("relumt")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `first` first."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
