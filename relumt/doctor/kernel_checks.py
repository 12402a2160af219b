"""Checks of every kernel on a GPU, each in a process that it may crash, and what `auto` uses as a result."""

import functools
from collections.abc import Callable, Iterator, Sequence

import torch

from relumt.attention.kernels.self_check import KernelConfig, check_config, environment, is_usable
from relumt.attention.kernels.verdict_cache import Outcome, VerdictCache, cache_folder
from relumt.doctor.check import Check
from relumt.doctor.isolated_calls import Failure, NotStarted, isolated_calls
from relumt.doctor.storage import check_relumt_cache

TIME_LIMIT = 300
"""Seconds for one configuration: compiling forward and backward kernels takes most of it."""

CheckConfig = Callable[[KernelConfig, torch.device], str]


class UnusableGpuError(Exception):
    """The GPU is unusable for this process; the message says what a kernel did before."""


def check_kernels(
    configs: Sequence[KernelConfig], device: torch.device, check: CheckConfig = check_config,
    time_limit: float = TIME_LIMIT,
) -> Iterator[tuple[KernelConfig, Check]]:  # fmt: skip
    """Check configurations on a device and remember for training which passed and which crashed.

    Args:
        configs: what to check.
        device: where.
        check: returns why a configuration fails, "" if it does not.
        time_limit: for one configuration, in seconds.

    Yields:
        Each configuration and its check.
    """
    cache = VerdictCache(environment(device), cache_folder())
    can_remember = check_relumt_cache().status == "ok"  # if not, a check of the machine has said so
    outcomes = isolated_calls(functools.partial(_check_kernel, check, device), configs, time_limit)
    for config, found in zip(configs, outcomes, strict=True):
        if can_remember and (outcome := _outcome_to_remember(found)):
            cache.add(str(config), outcome)
        yield config, _describe(str(config), found)


def _describe(name: str, found: str | Failure) -> Check:
    if isinstance(found, NotStarted):
        return Check(name, "warning", f"not checked: {found.reason}")
    if reason := found.reason if isinstance(found, Failure) else found:
        return Check(name, "warning", f"{reason}; auto uses PyTorch operators")
    return Check(name, "ok", "agrees with float64; auto uses Triton")


def _outcome_to_remember(found: str | Failure) -> Outcome | None:
    """Return what training has to know; a kernel that merely failed is checked again there."""
    if isinstance(found, NotStarted):
        return None
    if isinstance(found, Failure):
        return "crashed"
    return None if found else "passed"


def _check_kernel(check: CheckConfig, device: torch.device, config: KernelConfig) -> str:
    """Return why a configuration fails; raise UnusableGpuError if nothing else can be checked in this process."""
    reason = check(config, device)
    if reason and not is_usable(device):
        raise UnusableGpuError(reason)
    return reason
