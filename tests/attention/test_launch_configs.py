"""How blocks are chosen: by the GPU's shared memory, by what was tuned, and smaller where they do not fit."""

import logging
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")
from triton import OutOfResources

from relumt.attention import AttentionMask
from relumt.attention.kernels import fitting_blocks, pointwise_launch_configs, pointwise_triton, tuned_blocks
from relumt.attention.kernels.fitting_blocks import FittingBlocks, halve_larger_tile
from relumt.attention.kernels.launch_config import LaunchConfig
from relumt.attention.kernels.pointwise_launch_configs import (
    LAUNCH_CONFIGS,
    launch_config,
    table_config,
)
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.kernels.pointwise_triton_forward import clips_late
from relumt.attention.kernels.self_check import check_config
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from tests.attention.test_pointwise_triton import make_params, random_inputs

GPU = torch.device("cuda", 0)
CONFIGS = sorted({config for kinds in LAUNCH_CONFIGS.values() for x in kinds.values() for config in x.values()})


@pytest.fixture(autouse=True)
def forget_blocks(monkeypatch, tmp_path):
    """Give each test an empty cache folder, and no blocks that earlier calls remembered."""
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path))
    caches = (fitting_blocks.fitting_blocks, tuned_blocks.read, tuned_blocks._warn_once)
    caches += (pointwise_launch_configs.shared_memory,)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that there is a GPU with 163 KiB of shared memory per program, like an A100."""
    properties = SimpleNamespace(shared_memory_per_block_optin=163 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    return GPU


def start_up_to(max_pairs, started):
    """Return a kernel that records its configurations, and fails for tiles of more pairs."""

    def start(config):
        started.append(config)
        if max_pairs < config.BLOCK_T * config.BLOCK_S:
            raise OutOfResources(200_000, 101_376, "shared memory")

    return start


def test_blocks_are_halved_until_they_fit_and_remembered():
    blocks, started = FittingBlocks(LaunchConfig(128, 128, 8, 3)), []
    for _ in range(2):
        blocks.launch(start_up_to(32 * 64, started))
    sizes = [config[:2] for config in started]
    assert sizes == [(128, 128), (128, 64), (64, 64), (64, 32), (64, 32)]
    assert {config[2:] for config in started} == {(8, 3)}


def test_the_error_is_raised_when_the_smallest_blocks_do_not_fit():
    started = []
    with pytest.raises(OutOfResources):
        FittingBlocks(LaunchConfig(32, 64, 4, 2)).launch(start_up_to(0, started))
    assert [config[:2] for config in started] == [(32, 64), (32, 32), (32, 16), (16, 16)]


@pytest.mark.parametrize("config", CONFIGS)
def test_tiles_stay_powers_of_two_and_multiples_of_16(config):
    while (smaller := halve_larger_tile(config)) != config:
        config = smaller
        assert {config.BLOCK_T, config.BLOCK_S} <= {16, 32, 64, 128, 256}
    assert config[:2] == (16, 16)


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_results_are_the_same_with_the_smaller_blocks(dropout_p, monkeypatch, caplog):
    """Kernels that fail for more than 16 × 16 pairs as the driver would: the result is that of kernels that fit."""
    q, k, v, key_mask = random_inputs(1, 2, 33, 50, 16)
    params = make_params("relu", q, AttentionMask(key_mask, True))

    def outputs_and_gradients():
        torch.manual_seed(3)
        output = pointwise_triton.attend(q, k, v, params, key_mask, True, dropout_p, False, torch.float32)[0]
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    expected = outputs_and_gradients()
    fitting_blocks.fitting_blocks.cache_clear()
    tiles = {name: [] for name in LAUNCH_CONFIGS}

    class OnlySmallBlocks:
        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            def launch(*arguments, **constants):
                tiles[self.name].append((constants["BLOCK_T"], constants["BLOCK_S"]))
                if constants["BLOCK_T"] * constants["BLOCK_S"] > 256:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "kind", "options"),
    [
        ("relu", "long", {"is_causal": True, "has_key_mask": True}),
        ("relu", "long_full", {"has_row_stats": True}),
        ("sigmoid", "long_full", {"has_bias": True}),
        ("relu", "dropout", {"has_row_stats": True, "has_dropout": True}),
        ("relu", "float32", {"is_causal": True, "has_row_stats": True}),
    ],
)
def test_the_largest_blocks_agree_with_float64(activation, kind, options, monkeypatch):
    monkeypatch.setattr(pointwise_launch_configs, "INTERPRETED", 227)
    pointwise_launch_configs.shared_memory.cache_clear()
    dtype = torch.float32 if kind == "float32" else torch.float16
    config = PointwiseConfig(activation, dtype, dtype, 16, kind, kind, **options)
    assert check_config(config, torch.device("cpu")) == ""


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("need_row_stats", [False, True])
def test_plain_calls_are_those_that_the_kernels_compile_as_such(activation, has_bias, need_row_stats):
    params = PointwiseParams(activation, torch.ones(1, 1), torch.ones(1, 1) if has_bias else None)
    assert params.is_plain(need_row_stats) == clips_late(params.bias, activation, need_row_stats)


def test_blocks_depend_on_shared_memory(gpu):
    small, large = (table_config("forward", "wide", kib) for kib in (99, 227))
    assert small.BLOCK_T * small.BLOCK_S < large.BLOCK_T * large.BLOCK_S
    assert launch_config("forward", "wide", gpu) == table_config("forward", "wide", 163)
    assert launch_config("forward", "wide", torch.device("cpu")) == small


def test_tuned_blocks_replace_those_of_the_table(gpu, monkeypatch, caplog):
    table = launch_config("forward", "long", gpu)
    tuned_blocks.write(gpu, {"forward": {"long": LaunchConfig(32, 64, 4, 2)}})
    tuned_blocks.write(
        gpu, {"forward": {"short": LaunchConfig(16, 64, 4, 2)}, "backward_dq": {"long": LaunchConfig(64, 64, 4, 1)}}
    )
    assert launch_config("forward", "long", gpu) == LaunchConfig(32, 64, 4, 2)
    assert launch_config("forward", "short", gpu) == LaunchConfig(16, 64, 4, 2)
    assert launch_config("backward_dq", "long", gpu) == LaunchConfig(64, 64, 4, 1)
    tuned_blocks.read.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H100")
    assert launch_config("forward", "long", gpu) == table
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "", "[1, 2]", "\x00", '{"blocks": {}, "other": 1}', "[" * 100_000,
        '{"blocks": {"A100": {"forward": {"long": [100, 64, 4, 2]}}}}',
        '{"blocks": {"A100": {"forward": {"long": [64, 64, 3, 2]}}}}',
        '{"blocks": {"A100": {"forward": {"long": [64]}}}}',
        '{"blocks": {"A100": {"backward": {"long": [64, 64, 4, 2]}}}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_ignored_with_one_warning(text, gpu, caplog):
    tuned_blocks.path().write_text(text)
    for kind in ("long", "short"):
        assert launch_config("forward", kind, gpu) == table_config("forward", kind, 163)
        tuned_blocks.read.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "it is ignored" in caplog.text and caplog.records[0].message.count("\n") == 0
    tuned_blocks.write(gpu, {"forward": {"long": LaunchConfig(32, 64, 4, 2)}})  # replaces the damaged file
    assert launch_config("forward", "long", gpu) == LaunchConfig(32, 64, 4, 2)


def test_a_folder_in_place_of_the_file_is_ignored(gpu, caplog):
    tuned_blocks.path().mkdir(parents=True)
    assert launch_config("forward", "long", gpu) == table_config("forward", "long", 163)
    assert len(caplog.records) == 1
