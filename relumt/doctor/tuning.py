"""`relumt doctor --tune`: the search for block sizes, each kind of calls in a process that it may crash."""

from typing import TYPE_CHECKING, get_args

from relumt.console import print_status
from relumt.doctor.gpus import find_gpus
from relumt.doctor.storage import check_relumt_cache
from relumt.errors import AttemptFailedError, UserError

if TYPE_CHECKING:  # PyTorch may be missing
    import torch

    from relumt.attention.kernels.launch_config import CallKind

TIME_LIMIT = 2 * 3600
"""Seconds for one kind of calls: about 200 kernels are compiled and timed."""


def tune_gpus() -> None:
    """Search block sizes on one GPU of each model, remember them, and print a table for each kind of calls.

    Raises:
        UserError: there is no GPU that runs the kernels, or the cache is not writable.
        AttemptFailedError: the search failed for some kinds of calls.
    """
    gpus = find_gpus()
    if not gpus:
        raise UserError("--tune needs a GPU, but torch sees none; relumt doctor without --tune says more")
    from relumt.attention.kernels.dispatch import reason_against_device

    for device in gpus:
        if reason := reason_against_device(device):
            raise UserError(f"--tune cannot search block sizes on {device}: {reason}")
    cache = check_relumt_cache()
    if cache.status != "ok":
        raise UserError(f"--tune could not remember what it finds in {cache.detail}; {cache.advice}")
    if failed := [kind for device in gpus for kind in tune_device(device)]:
        raise AttemptFailedError(f"no block sizes were found for {', '.join(failed)}; those in use stay as they are")


def tune_device(device: "torch.device") -> list[str]:
    """Search block sizes on a device, and return the kinds of calls for which that failed."""
    from relumt.attention.kernels.launch_config import CallKind
    from relumt.doctor.isolated_calls import Failure, isolated_calls

    tasks = [(device, kind) for kind in get_args(CallKind)]
    print_status(f"searching block sizes on {device}, which takes up to an hour; tables appear as they are finished")
    failed = []
    for (_, kind), found in zip(tasks, isolated_calls(tune_kind, tasks, TIME_LIMIT), strict=True):
        if isinstance(found, Failure):
            print_status(f"{kind} calls on {device}: {found.reason}")
            failed.append(f"{kind} calls on {device}")
        else:
            print("\n".join([*found, ""]), flush=True)
    return failed


def tune_kind(task: "tuple[torch.device, CallKind]") -> list[str]:
    """Search and remember block sizes for a kind of calls on a device; return the lines of a table."""
    from relumt.attention.kernels.tuning import tune

    device, kind = task
    lines: list[str] = []
    tune(device, [kind], lines.append)
    return lines
