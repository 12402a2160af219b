"""Tuning: the fastest blocks are used from then on. Times are faked, because only a GPU could measure them."""

import pytest
import torch

pytest.importorskip("triton")
from triton import OutOfResources

from relumt.attention.kernels import pointwise_triton, self_check, tuned_blocks, tuning
from relumt.attention.kernels.fitting_blocks import fitting_blocks
from relumt.attention.kernels.launch_config import LaunchConfig
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS

CPU = torch.device("cpu")
CURRENT = LaunchConfig(32, 32, 4, 1)  # that of the kind "float32"
FAST, SLOW, BROKEN, LARGE = (LaunchConfig(*sizes, 4, 1) for sizes in ((16, 32), (64, 32), (32, 64), (64, 64)))
SECONDS = {CURRENT: 1.0, FAST: 0.5, SLOW: 2.0}


@pytest.fixture(autouse=True)
def faked_gpu(monkeypatch, tmp_path):
    """Launch small kernels in the interpreter, with the times above; BROKEN and LARGE cannot be launched."""
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "faked GPU")
    monkeypatch.setattr(tuning, "CANDIDATES", [SLOW, BROKEN, FAST, CURRENT, LARGE])
    monkeypatch.setitem(tuning.TYPICAL_CALLS, "float32", tuning._TypicalCall(1, 1, 5, 4, torch.float32, 0.1))
    monkeypatch.setattr(tuning, "kernel_seconds", time_launched_blocks)
    fitting_blocks.cache_clear()
    yield
    fitting_blocks.cache_clear()


def time_launched_blocks(work, device):
    launched = []

    class Recorded:
        def __getitem__(self, grid):
            def launch(*arguments, BLOCK_T, BLOCK_S, num_warps, num_stages, **constants):
                config = LaunchConfig(BLOCK_T, BLOCK_S, num_warps, num_stages)
                if config == BROKEN:
                    raise RuntimeError("PassManager::run failed")
                if config == LARGE:
                    raise OutOfResources(200_000, 101_376, "shared memory")
                launched.append(config)

            return launch

    with pytest.MonkeyPatch.context() as patch:
        for name in LAUNCH_CONFIGS:
            patch.setattr(pointwise_triton, name, Recorded())
        work()
    return sum(SECONDS[config] for config in launched)


def test_the_fastest_blocks_are_remembered_and_used():
    lines = []
    found = tuning.tune(CPU, ["float32"], lines.append)
    assert found == {name: {"float32": FAST} for name in LAUNCH_CONFIGS}
    assert [fitting_blocks(name, "float32", CPU).config for name in found] == [FAST] * 3
    content = tuned_blocks._read()
    assert list(content.blocks.values()) == [found] and "faked GPU" in next(iter(content.blocks))
    # In the backward pass the other kernel takes as long as before.
    assert [[*line.split("|")[1:3], line.split("|")[-2]] for line in lines[2:]] == [
        [" forward ", " float32 ", " 0.500 "], [" backward_dq ", " float32 ", " 0.750 "],
        [" backward_dkdv ", " float32 ", " 0.667 "],
    ]  # fmt: skip


def test_blocks_stay_where_others_are_hardly_faster(monkeypatch):
    monkeypatch.setitem(SECONDS, FAST, 0.99)
    assert tuning.tune(CPU, ["float32"], lambda line: None) == {name: {"float32": CURRENT} for name in LAUNCH_CONFIGS}


def test_an_interrupted_search_leaves_the_blocks_as_they_were(monkeypatch):
    def interrupt(work, device):
        if fitting_blocks("forward", "float32", CPU).config != CURRENT:
            raise KeyboardInterrupt
        return time_launched_blocks(work, device)

    monkeypatch.setattr(tuning, "kernel_seconds", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(CPU, ["float32"], lambda line: None)
    assert fitting_blocks("forward", "float32", CPU).config == CURRENT and not tuned_blocks.path().exists()


def test_tuned_blocks_are_checked_again(monkeypatch):
    before = self_check.environment(CPU)
    monkeypatch.setattr(tuned_blocks, "read", lambda device: {"forward": {"float32": FAST}})
    assert self_check.environment(CPU) != before
