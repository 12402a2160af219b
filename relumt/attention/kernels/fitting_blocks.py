"""Launch kernels with smaller blocks where the chosen ones do not fit the GPU."""

import functools
import logging
from collections.abc import Callable

import torch
from triton import OutOfResources

from relumt.attention.kernels.launch_config import CallKind, KernelName, LaunchConfig
from relumt.attention.kernels.pointwise_launch_configs import launch_config

logger = logging.getLogger(__name__)

MIN_TILE = 16
"""Dropout's random numbers and the products of tensor cores need as much."""


class FittingBlocks:
    """The largest blocks that a GPU has not refused, for the calls of one kind of a kernel.

    Args:
        config: what to try first.
    """

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config

    def launch(self, start: Callable[[LaunchConfig], object]) -> None:
        """Call `start`, which launches the kernel, with smaller and smaller blocks until they fit.

        Raises:
            OutOfResources: the smallest blocks do not fit either.
        """
        while True:
            try:
                start(self.config)
                return
            except OutOfResources as error:
                smaller = halve_larger_tile(self.config)
                if smaller == self.config:
                    raise
                logger.info("%s does not fit the GPU (%s); trying %s", self.config, error, smaller)
                self.config = smaller


@functools.cache
def fitting_blocks(kernel: KernelName, kind: CallKind, device: torch.device) -> FittingBlocks:
    """Return what is known about a kernel on a device; the same object for as long as the process runs."""
    return FittingBlocks(launch_config(kernel, kind, device))


def halve_larger_tile(config: LaunchConfig) -> LaunchConfig:
    """Halve the larger dimension of the tiles, of two equal ones the keys'; neither below MIN_TILE."""
    if config.BLOCK_T > config.BLOCK_S:
        return config._replace(BLOCK_T=config.BLOCK_T // 2)
    return config._replace(BLOCK_S=max(MIN_TILE, config.BLOCK_S // 2))
