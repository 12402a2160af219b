"""How blocks are chosen: by the GPU's shared memory, and smaller where they do not fit."""

import logging
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")
from triton import OutOfResources

from relumt.attention import AttentionMask
from relumt.attention.kernels import pointwise_triton
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS, shared_memory, table_config
from relumt.attention.kernels.pointwise_triton import halve_larger_tile
from tests.attention.test_pointwise_triton import make_params, random_inputs

CONFIGS = sorted({config for kinds in LAUNCH_CONFIGS.values() for x in kinds.values() for config in x.values()})


@pytest.fixture(autouse=True)
def forget_blocks(monkeypatch):
    """Give each test no blocks that earlier calls remembered."""
    monkeypatch.setattr(pointwise_triton, "FITTING", {})
    shared_memory.cache_clear()
    yield
    shared_memory.cache_clear()


@pytest.mark.parametrize("config", CONFIGS)
def test_tiles_stay_powers_of_two_and_multiples_of_16(config):
    while (smaller := halve_larger_tile(config)) != config:
        config = smaller
        assert {config.BLOCK_T, config.BLOCK_S} <= {16, 32, 64, 128, 256}
    assert config[:2] == (16, 16)


def test_results_are_the_same_with_the_smaller_blocks(monkeypatch, caplog):
    """Kernels that fail for more than 16 × 16 pairs as the driver would: the result is that of kernels that fit."""
    q, k, v, key_mask = random_inputs(1, 1, 20, 33, 8)
    params = make_params("relu", q, AttentionMask(key_mask, True))

    def outputs_and_gradients():
        torch.manual_seed(3)
        output = pointwise_triton.attend(q, k, v, params, key_mask, True, 0.3, 0, torch.float32)[0]
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    expected = outputs_and_gradients()
    max_pairs = 256
    tiles = {name: [] for name in LAUNCH_CONFIGS}

    class OnlySmallBlocks:
        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            def launch(*arguments, **constants):
                tiles[self.name].append((constants["BLOCK_T"], constants["BLOCK_S"]))
                if constants["BLOCK_T"] * constants["BLOCK_S"] > max_pairs:
                    raise OutOfResources(200_000, 101_376, "shared memory")
                self.kernel[grid](*arguments, **constants)

            return launch

    for name in LAUNCH_CONFIGS:
        monkeypatch.setattr(pointwise_triton, name, OnlySmallBlocks(name, getattr(pointwise_triton, name)))
    with caplog.at_level(logging.INFO, "relumt"):  # `relumt` commands in earlier tests raise its level
        actual = outputs_and_gradients()
        outputs_and_gradients()
    torch.testing.assert_close(actual, expected)
    assert all(sizes == [(32, 32), (32, 16), (16, 16), (16, 16)] for sizes in tiles.values())
    assert sum("does not fit the GPU" in record.message for record in caplog.records) == 2 * len(tiles)
    max_pairs = 0
    with pytest.raises(OutOfResources):
        outputs_and_gradients()


def test_blocks_depend_on_shared_memory(monkeypatch):
    small, large = (table_config("forward", "wide", kib) for kib in (99, 227))
    assert small.BLOCK_T * small.BLOCK_S < large.BLOCK_T * large.BLOCK_S
    properties = SimpleNamespace(shared_memory_per_block_optin=163 * 1024)  # an A100's
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert (shared_memory(torch.device("cuda", 0)), shared_memory(torch.device("cpu"))) == (163, 0)
