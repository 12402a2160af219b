"""The report of `relumt doctor`, printed as it is found out."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.doctor.check import Check, Status, run_check
from relumt.doctor.checks import CHECKS
from relumt.doctor.gpus import find_gpus
from relumt.errors import AttemptFailedError, UserError, printable

if TYPE_CHECKING:  # PyTorch may be missing
    import torch

    from relumt.attention.kernels.self_check import KernelConfig

STYLES: dict[Status, str] = {"ok": "green", "warning": "yellow", "error": "red"}
WIDTH = max(map(len, STYLES)) + 2


def report_machine() -> None:
    """Check the machine and the installation, and the kernels if there is a GPU.

    Raises:
        AttemptFailedError: something that training needs is broken.
        UserError: the current directory was deleted; then MKL would end the process.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the current directory does not exist any more; change to another one") from None
    broken = []
    for function in CHECKS:
        check = run_check(function)
        print_check(check)
        if check.status == "error":
            broken.append(check.name)
    for device in find_gpus():
        report_kernels(device)
    if broken:
        raise AttemptFailedError(f"training needs what is broken: {', '.join(broken)}; follow the advice above")


def report_kernels(device: "torch.device") -> None:
    """Check every kernel on a device, time those that work, and say which ones `auto` uses."""
    from relumt.attention.kernels.dispatch import reason_against_device
    from relumt.attention.kernels.self_check import all_configs
    from relumt.doctor.kernel_checks import check_kernels

    if reason := reason_against_device(device):
        print_check(Check(f"kernels on {device}", "warning", f"not checked: {reason}; auto uses PyTorch operators"))
        return
    print(f"\nkernels on {device}; each is compiled first, which takes seconds")
    start, configs, working = time.monotonic(), all_configs(), []
    for config, check in check_kernels(configs, device):
        print_check(check)
        if check.status == "ok":
            working.append(config)
    report_speeds(working, device)
    minutes = (time.monotonic() - start) / 60
    print(f"\nauto uses Triton for {len(working)} of {len(configs)} kinds of calls on {device} ({minutes:.1f} minutes)")
    if len(working) < len(configs):
        print(
            "training works without the others, but needs more time and memory; please attach this report to an issue"
        )


def report_speeds(configs: "Sequence[KernelConfig]", device: "torch.device") -> None:
    """Time kernels beside softmax, and print a table."""
    from relumt.doctor.isolated_calls import Failure
    from relumt.doctor.kernel_speeds import format_times, time_kernels

    times = {}
    for config, measured in time_kernels(configs, device):
        if isinstance(measured, Failure):
            print_check(Check(f"time of {config}", "warning", measured.reason))
        else:
            times[config] = measured
    print("\nmilliseconds, forward/backward, beside softmax by the backends of scaled_dot_product_attention\n")
    print(format_times(times, device))


def print_check(check: Check) -> None:
    """Print a check on a line, and advice on a second one; in color if stdout is a terminal."""
    advice = f"\n{'':{WIDTH}}{printable(check.advice)}" if check.advice else ""
    print(f"{_colored(check.status)}{printable(f'{check.name}: {check.detail}')}{advice}", flush=True)


def _colored(status: Status) -> str:
    """Return a status in a column, with the terminal's escape sequences if stdout is one."""
    column = f"{status:{WIDTH}}"
    try:
        from rich.console import Console
    except ImportError:  # a check says so
        return column
    console = Console()
    # Captured, because rich itself ends the process with status 1 when the reader closes the pipe.
    with console.capture() as captured:
        console.print(column, style=STYLES[status], end="")
    return captured.get()
