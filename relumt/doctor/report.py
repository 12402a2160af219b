"""The report of `relumt doctor`, printed as it is found out: software, hardware, and every kernel on a GPU."""

import functools
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import relumt
from relumt import fairseq_version
from relumt.doctor import Check, try_each
from relumt.doctor.hardware import check_cpu, check_gpus, check_kernel_setting, find_gpus
from relumt.errors import AttemptFailedError, UserError, describe_error, printable
from relumt.runs.environment import describe_revision, installed_version


def check_relumt() -> Check:
    """Name the version, the revision, the folder from which it is imported, and Python."""
    folder, python = Path(relumt.__file__).resolve().parent, f"Python {platform.python_version()} ({sys.executable})"
    return Check("relumt", "ok", f"{relumt.__version__}, {describe_revision()}, in {folder}; {python}")


def check_packages() -> Check:
    """Check that the packages that relumt requires are installed in versions that it allows."""
    from packaging.requirements import Requirement

    try:
        listed = [Requirement(text) for text in requires("relumt") or []]
    except PackageNotFoundError:
        return Check("packages", "warning", "unknown, because relumt is not installed", "run pip install .")
    problems = []
    for requirement in listed:
        found = installed_version(requirement.name)
        is_allowed = found is not None and requirement.specifier.contains(found, prereleases=True)
        if not is_allowed and (requirement.marker is None or requirement.marker.evaluate()):
            problems.append(f"{requirement} is required, found {found or 'none'}")
    if problems:
        return Check("packages", "error", "; ".join(problems), "run PIP_CONSTRAINT=constraints.txt pip install .")
    return Check("packages", "ok", "all that relumt requires are installed")


def check_torch() -> Check:
    """Check that torch can be imported; name its version, what it is built for, and Triton's version."""
    import torch

    cuda, rocm = torch.version.cuda, torch.version.hip
    build = f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "CPU only"
    triton = installed_version("triton") or "is not installed"
    return Check("torch", "ok", f"{torch.__version__}, built for {build}; Triton {triton}, which only GPUs use")


def check_fairseq() -> Check:
    """Check which fairseq is imported and from where, that it is supported, and that relumt registers with it."""
    found = fairseq_version.describe_fairseq()
    fairseq_version.require_supported_fairseq()
    detail, advice = f"{found}, imported from {found.path}", f"run {fairseq_version.HOW_TO_INSTALL}"
    if " and " in found.distribution:
        return Check("fairseq", "error", f"{detail}: they overwrite each other", f"uninstall both, then {advice}")
    (problem,) = try_each(register_with_fairseq, [None])
    if problem:
        return Check("fairseq", "error", f"{detail}, cannot be imported with relumt: {problem}", advice)
    names = {package.name for package in fairseq_version.find_distributions()}
    if shadowed := sorted(names - {found.distribution}):
        detail += f", not from {' or '.join(shadowed)}"
        return Check("fairseq", "warning", detail, "unset PYTHONPATH, or uninstall what you do not use")
    if found.version not in fairseq_version.SUPPORTED_VERSIONS:
        return Check("fairseq", "warning", f"{detail}: relumt was not tested with it", advice)
    return Check("fairseq", "ok", detail)


def register_with_fairseq(_: None) -> None:
    """Import fairseq, and register relumt with it."""
    fairseq_version.prepare_fairseq_import()
    import fairseq.tasks  # noqa: F401

    relumt.register()


CHECKS = (check_relumt, check_packages, check_torch, check_fairseq, check_cpu, check_gpus, check_kernel_setting)


def report_machine() -> None:
    """Check the machine and the installation, and the kernels if there is a GPU.

    Raises:
        AttemptFailedError: something that training needs is broken.
    """
    found = [print_check(run_check(function)) for function in CHECKS]
    for gpu in find_gpus():
        report_kernels(gpu)
    if broken := ", ".join(check.name for check in found if check.status == "error"):
        raise AttemptFailedError(f"training needs what is broken: {broken}; follow the advice above")


def run_check(function: Callable[[], Check]) -> Check:
    """Return what a check finds; an exception that it raises is an error of its subject."""
    try:
        return function()
    except Exception as error:  # whatever is broken on the machine must not end the report
        detail = str(error) if isinstance(error, UserError) else describe_error(error)
        return Check(function.__name__.removeprefix("check_").replace("_", " "), "error", detail)


def report_kernels(gpu: str) -> None:
    """Compare every kernel on a GPU with float64, and say which ones `auto` uses."""
    import torch

    from relumt.attention.kernels.dispatch import reason_against_device
    from relumt.attention.kernels.self_check import all_configs, check_config

    if reason := reason_against_device(torch.device(gpu)):
        print_check(Check(f"kernels on {gpu}", "warning", f"not checked: {reason}; auto uses PyTorch operators"))
        return
    print(f"\nkernels on {gpu}; each is compiled first, which takes seconds")
    start, configs, working = time.monotonic(), all_configs(), 0
    problems = try_each(functools.partial(check_config, device=torch.device(gpu)), configs)
    for config, problem in zip(configs, problems, strict=True):
        working += not problem
        detail = f"{problem}; auto uses PyTorch operators" if problem else "agrees with float64; auto uses Triton"
        print_check(Check(str(config), "warning" if problem else "ok", detail))
    print(
        f"\nauto uses Triton for {working} of {len(configs)} kinds of calls on {gpu} ({time.monotonic() - start:.0f} s)"
    )
    if working < len(configs):
        print("training works without the others, but takes more time and memory; please attach this to an issue")


def print_check(check: Check) -> Check:
    """Print a check on a line, and advice on a second one; return the check."""
    advice = f"\n{'':9}{printable(check.advice)}" if check.advice else ""
    print(f"{check.status:9}{printable(f'{check.name}: {check.detail}')}{advice}", flush=True)
    return check
