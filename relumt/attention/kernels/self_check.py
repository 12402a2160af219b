"""Let the kernels prove themselves on the machine at hand before `auto` uses them.

On the first use of a configuration, its output, row sums and gradients are compared with float64 on a small random
case. A configuration that is wrong or cannot be launched is not used: the caller computes with PyTorch operators, and
the log says so once.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from relumt.attention.kernels import self_check_inhibitor, self_check_pointwise, self_check_sparse
from relumt.attention.kernels.hopper import selection
from relumt.attention.kernels.pointwise_launch_configs import SHORT, call_kind
from relumt.attention.kernels.pointwise_params import Activation
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from relumt.attention.kernels.self_check_sparse import SparseConfig
from relumt.errors import AttemptFailedError, describe_error

logger = logging.getLogger(__name__)

KernelConfig = PointwiseConfig | InhibitorConfig
"""Configurations of relumt's own kernels, which `relumt doctor` checks."""

MASKS: dict[str, Any] = {"has_key_mask": True, "is_causal": True}
ROW_SUMS: dict[str, Any] = {"row_sums": 2}
DROPOUT = {"has_dropout": True}
ALL_OPTIONS = MASKS | ROW_SUMS | DROPOUT
"""Options of a PointwiseConfig."""
L1_NORM: dict[str, Any] = {"has_bias": True, "row_sums": 1}
USES: tuple[tuple[Activation, dict[str, Any]], ...] = (
    *(("relu", options) for options in ({}, MASKS, ROW_SUMS, ALL_OPTIONS)),
    *(("relu2", options) for options in ({}, ALL_OPTIONS)),
    *((activation, L1_NORM | options) for activation in ("relu2", "relu8") for options in ({}, MASKS | DROPOUT)),
    *(("sigmoid", {"has_bias": True} | options) for options in ({}, ALL_OPTIONS)),
)
"""How models use the kernels: `relu` and its relatives, `relu2`, `relu_l1` with powers 2 and 8, and `sigmoid`, which no
file in configs/models regularizes."""

CheckedConfig = KernelConfig | SparseConfig
Returned = TypeVar("Returned")


def check_config(config: CheckedConfig, device: torch.device) -> str:
    """Compare a configuration with float64; return why it cannot be used, "" if it can.

    The state of all random number generators is kept.
    """
    try:
        with _undisturbed(device):
            if isinstance(config, PointwiseConfig):
                results = self_check_pointwise.results(config, device)
            elif isinstance(config, SparseConfig):
                results = self_check_sparse.results(config, device)
            else:
                results = self_check_inhibitor.results(config, device)
            return next(filter(None, (result.disagreement() for result in results)), "")
    except Exception as error:  # a launch fails with errors of Triton, torch, the compiler or the file system
        return describe_error(error)


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Enable gradients, disable autocast, fill uninitialized memory with NaN, and restore all of it in the end.

    NaN shows which results a kernel has not written. The state of the random number generators is restored as well.
    """
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    devices = [device] if device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        torch.device("cpu"),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was_deterministic, warn_only=only_warned)


class Verdicts:
    """Which configurations can be used on a device; each is checked once per process.

    Args:
        device: where the kernels run.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.reasons: dict[CheckedConfig, str] = {}

    def run(self, config: CheckedConfig, attend: Callable[[], Returned]) -> Returned | None:
        """Return what `attend` returns, or None if this configuration cannot be used; check it first if need be.

        A launch that fails in spite of the check, for example because of a full disk, is not tried again either.
        """
        if not self.allows(config):
            return None
        try:
            return attend()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # Triton's, torch's, the compiler's or the file system's
            self._reject(config, describe_error(error))
            return None

    def allows(self, config: CheckedConfig) -> bool:
        """Return whether a configuration can be used; check it first if need be.

        Nothing is checked while a CUDA graph is captured, and what has not been checked is not used.

        Raises:
            AttemptFailedError: the check left the GPU unusable for this process.
        """
        if config not in self.reasons:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return False
            self._check(config)
        return not self.reasons[config]

    def _check(self, config: CheckedConfig) -> None:
        reason = check_config(config, self.device)
        if not reason:
            self.reasons[config] = ""
        elif is_usable(self.device):
            self._reject(config, reason)
        else:
            raise AttemptFailedError(
                f"the kernel for {config} made {self.device} unusable for this process ({reason}); start again with "
                "RELUMT_KERNELS=reference"
            )

    def _reject(self, config: CheckedConfig, reason: str) -> None:
        self.reasons[config] = reason
        logger.warning(
            "no fused %s: %s; using PyTorch operators or other kernels (relumt doctor checks all)", config, reason
        )


@functools.cache
def verdicts(device: torch.device) -> Verdicts:
    """Return the verdicts on a device, the same object at each call."""
    return Verdicts(device)


def is_usable(device: torch.device) -> bool:
    """Return whether the device still works; after an illegal access, every call of this process fails."""
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return False
    return True


def all_configs(device: torch.device) -> list[KernelConfig]:
    """Return the configurations that models use: all types, head sizes and kinds of calls.

    With the kernels for Hopper, too, if they are wanted on `device`.
    """
    configs: list[KernelConfig] = []
    types = ((torch.bfloat16, (64, 128)), (torch.float16, (64, 128)), (torch.float32, (64,)))
    for dtype, head_dims in types:
        for head_dim, length, (activation, options) in itertools.product(head_dims, (SHORT, SHORT + 1), USES):
            x = torch.empty(1, 1, length, head_dim, dtype=dtype)
            is_plain = activation == "relu" and "row_sums" not in options
            kind = call_kind(x, "has_dropout" in options, is_plain)
            is_normalized = L1_NORM.items() <= options.items()
            if is_normalized and dtype == torch.float16:
                continue  # its weights can exceed float16's range
            output_dtype = torch.float32 if is_normalized else dtype
            per_query = {"has_factor_per_query": "is_causal" in options and "has_bias" not in options}
            configs.append(
                PointwiseConfig(activation, dtype, output_dtype, head_dim, kind, kind, **options | per_query)
            )
    if selection.are_wanted(device):
        configs += [
            replace(config, kernel="hopper.launch", has_factor_per_query=has_factor_per_query)
            for config in configs
            if isinstance(config, PointwiseConfig) and config.query_kind != "short"
            for has_factor_per_query in (False, True)
            if selection.can_compute(
                config.activation, config.has_bias, has_factor_per_query, config.dtype, config.head_dim
            )
        ]
    for half, head_dim, value_factor, has_options in itertools.product((False, True), (64, 128), (1, 2), (False, True)):
        configs.append(InhibitorConfig(half, head_dim, value_factor * head_dim, *(has_options,) * 3))
    return list(dict.fromkeys(configs))
