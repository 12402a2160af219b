"""How blocks are chosen: by the GPU's shared memory."""

from types import SimpleNamespace

import pytest
import torch

from relumt.attention.kernels.pointwise_launch_configs import shared_memory, table_config


@pytest.fixture(autouse=True)
def forget_devices():
    """Ask for the shared memory of each device again, and not keep a made-up answer."""
    shared_memory.cache_clear()
    yield
    shared_memory.cache_clear()


def test_blocks_depend_on_shared_memory(monkeypatch):
    small, large = (table_config("forward", "wide", kib) for kib in (99, 227))
    assert small.BLOCK_T * small.BLOCK_S < large.BLOCK_T * large.BLOCK_S
    properties = SimpleNamespace(shared_memory_per_block_optin=163 * 1024)  # an A100's
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert (shared_memory(torch.device("cuda", 0)), shared_memory(torch.device("cpu"))) == (163, 0)
