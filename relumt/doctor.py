"""`relumt doctor`, printed as it is found out: software, hardware, and every kernel of attention on a GPU.

What could crash or hang is tried in a child process.
"""

import functools
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import relumt
from relumt import installation
from relumt.errors import AttemptFailedError, UserError, describe_error, printable
from relumt.process import end_with_parent, kernel_choice, usable_cores
from relumt.runs.environment import cpu_name, describe_revision, find_fp32_backend, installed_version

Item = TypeVar("Item")


class Check(NamedTuple):
    """What was found about one subject.

    Attributes:
        name: the subject.
        status: "error" if training needs it and it is broken, "warning" if something else is impaired.
        detail: what was found, on one line.
        advice: what to do about it; "" if nothing has to be done.
    """

    name: str
    status: Literal["ok", "warning", "error"]
    detail: str
    advice: str = ""


def try_each(function: Callable[[Item], str | None], items: Iterable[Item], time_limit: float = 300) -> Iterator[str]:
    """Yield the problem of each item, "" if there is none.

    One child process serves all items until one has a problem; then a new one goes on, because a GPU that was accessed
    illegally is unusable for a process.

    Args:
        function: returns the problem of an item, if any; an exception, a crash and a hanging process are problems, too.
        items: its arguments; both can be pickled.
        time_limit: seconds for an item, with the start of a process, which imports torch.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not work in a forked process
    left = list(items)
    with tempfile.NamedTemporaryFile(prefix="relumt-doctor-") as log:
        while left:
            pool = ProcessPoolExecutor(1, context, _start_worker, (os.getpid(), log.name))
            problem, call = "", Future[str | None]()
            try:
                while left and not problem:
                    os.truncate(log.name, 0)  # a crash is explained by what this call prints
                    call = pool.submit(function, left.pop(0))
                    problem = _find_problem(call, time_limit, Path(log.name))
                    yield problem
            finally:
                if problem or not call.done():  # others end by themselves, and clean up
                    for child in multiprocessing.active_children():
                        child.kill()
                pool.shutdown()


def _start_worker(parent: int, log: str) -> None:
    end_with_parent(parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)


def _find_problem(call: Future[str | None], time_limit: float, log: Path) -> str:
    try:
        return call.result(time_limit) or ""
    except TimeoutError:
        return f"no result within {time_limit:g} seconds"
    except BrokenProcessPool:
        printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "its process crashed" + "".join(f": {line[:200]}" for line in printed[-1:])
    except Exception as error:  # whatever is broken: compilation, launch, memory
        return describe_error(error)


def check_relumt() -> Check:
    """Name the version, the revision, the folder from which it is imported, and Python."""
    folder, python = Path(relumt.__file__).resolve().parent, f"Python {platform.python_version()} ({sys.executable})"
    return Check("relumt", "ok", f"{relumt.__version__}, {describe_revision()}, in {folder}; {python}")


def check_packages() -> Check:
    """Check that the packages that training requires are installed in versions that it allows."""
    from packaging.requirements import Requirement

    try:
        listed = [Requirement(text) for text in requires("relumt") or []]
    except PackageNotFoundError:
        return Check("packages", "warning", "unknown, because relumt is not installed", "run make install")
    problems = []
    for requirement in listed:
        found = installed_version(requirement.name)
        is_allowed = found is not None and requirement.specifier.contains(found, prereleases=True)
        if not is_allowed and (requirement.marker is None or requirement.marker.evaluate({"extra": "fairseq"})):
            problems.append(f"{requirement} is required, found {found or 'none'}")
    if problems:
        return Check("packages", "error", "; ".join(problems), f"run {installation.HOW_TO_INSTALL}")
    return Check("packages", "ok", "all that training requires are installed")


def check_torch() -> Check:
    """Check that torch can be imported; name its version, what it is built for, and Triton's version."""
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    triton = installed_version("triton") or "is not installed"
    return Check("torch", "ok", f"{torch.__version__}, built for {build}; Triton {triton}, which only GPUs use")


def check_fairseq() -> Check:
    """Check which fairseq is imported and from where, that it is supported, and that relumt registers with it."""
    installation.require_supported_fairseq()
    path = installation.find_fairseq()
    detail = f"{installation.describe_fairseq()}, imported from {path}"
    advice = f"run {installation.HOW_TO_INSTALL}"
    (problem,) = try_each(register_with_fairseq, [None])
    if problem:
        return Check("fairseq", "error", f"{detail}, cannot be imported with relumt: {problem}", advice)
    if installation.read_version(path) not in installation.SUPPORTED_VERSIONS:
        return Check("fairseq", "warning", f"{detail}: relumt was not tested with it", advice)
    return Check("fairseq", "ok", detail)


def register_with_fairseq(_: None) -> None:
    """Import fairseq, and register relumt with it."""
    installation.prepare_fairseq_import()
    import fairseq.tasks  # noqa: F401

    relumt.register()


def check_cpu() -> Check:
    """Name the CPU, its cores, and what it computes products of fp32 and bf16 with."""
    from relumt.plugin.cpu_products import has_fast_bf16

    products = "oneDNN" if find_fp32_backend() == "onednn" else "PyTorch's default backend"
    bf16 = "fast bf16 (PRECISION=bf16)" if has_fast_bf16() else "no fast bf16: neither AVX512-BF16 nor AMX"
    return Check("CPU", "ok", f"{cpu_name()}; usable cores: {usable_cores()}; fp32 products by {products}; {bf16}")


def check_gpus() -> Check:
    """List the GPUs that torch sees and that compute correctly; or say why torch sees none."""
    import torch

    driver = gpu_driver()
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        problems = [f"GPU {i}: {x}" for i, x in enumerate(try_each(multiply_on_gpu, range(len(gpus)))) if x]
        if problems:
            advice = "check nvidia-smi and the CUDA build of torch, or hide the GPU with CUDA_VISIBLE_DEVICES"
            return Check("GPUs", "error", "; ".join(problems), advice)
        listed = (f"{x.name}, {x.total_memory / 2**30:.0f} GiB, compute capability {x.major}.{x.minor}" for x in gpus)
        return Check("GPUs", "ok", f"{'; '.join(listed)}; driver {driver or 'unknown'}")
    if not driver:
        return Check("GPUs", "ok", "none that torch sees; training uses the CPU, and Triton kernels cannot be checked")
    reason = "is CUDA_VISIBLE_DEVICES set?"
    try:
        torch.cuda.init()
    except Exception as error:  # says what is wrong with the driver, or that torch is not built for CUDA
        reason = describe_error(error)
    detail = f"nvidia-smi lists a GPU (driver {driver}), but torch sees none: {reason}"
    return Check("GPUs", "warning", detail, "update the driver, or install a build of torch for its version of CUDA")


def gpu_driver() -> str:
    """Return the version of NVIDIA's driver, "" if nvidia-smi finds no GPU."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def multiply_on_gpu(index: int) -> str:
    """Return what is wrong with a product and its gradient on a GPU, "" if nothing is."""
    import torch

    x = torch.ones(64, 64, device=f"cuda:{index}", dtype=torch.float16, requires_grad=True)
    (grad,) = torch.autograd.grad((x @ x).sum(), x)
    return "" if (grad == 128).all() else "a product is wrong"


def check_kernel_setting() -> Check:
    """Say which implementation of attention training uses here, and why."""
    import torch

    from relumt.attention.kernels.dispatch import reason_against_device

    setting = kernel_choice()
    name = f"RELUMT_KERNELS={setting}"
    if setting == "reference":
        return Check(name, "ok", "PyTorch operators, as asked for; Inhibitor on a CPU: Numba")
    if setting == "fused":
        return Check(name, "warning", "Triton without a self-check; very slow on a CPU", "unset RELUMT_KERNELS")
    if not torch.cuda.is_available():
        return Check(name, "ok", "PyTorch operators on the CPU, in blocks if there are many weights; Inhibitor: Numba")
    reason = reason_against_device(torch.device("cuda", 0))
    return Check(name, "ok", f"PyTorch operators: {reason}" if reason else "Triton where a kernel agrees with float64")


CHECKS = (check_relumt, check_packages, check_torch, check_fairseq, check_cpu, check_gpus, check_kernel_setting)


def report_machine() -> None:
    """Check the machine and the installation, and the kernels on one GPU of each model.

    Raises:
        AttemptFailedError: something that training needs is broken.
    """
    found = [print_check(run_check(function)) for function in CHECKS]
    if broken := ", ".join(check.name for check in found if check.status == "error"):
        raise AttemptFailedError(f"training needs what is broken: {broken}; follow the advice above")
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    for name in dict.fromkeys(names):
        report_kernels(f"cuda:{names.index(name)}")


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
    configs: list[Any] = all_configs(torch.device(gpu))
    working = 0
    problems = try_each(functools.partial(check_config, device=torch.device(gpu)), configs)
    for config, problem in zip(configs, problems, strict=True):
        working += not problem
        detail = f"{problem}; auto uses PyTorch operators" if problem else "agrees with float64; auto uses Triton"
        print_check(Check(str(config), "warning" if problem else "ok", detail))
    print(f"\nauto uses Triton for {working} of {len(configs)} kinds of calls on {gpu}")
    if working < len(configs):
        print("training works without the others, but takes more time and memory; please attach this to an issue")


def print_check(check: Check) -> Check:
    """Print a check on a line, and advice on a second one; return the check."""
    advice = f"\n{'':9}{printable(check.advice)}" if check.advice else ""
    print(f"{check.status:9}{printable(f'{check.name}: {check.detail}')}{advice}", flush=True)
    return check
