"""The environment of a run: versions of packages, the revision of relumt, the device and its precision."""

import platform
import re
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, get_args

import relumt
from relumt.errors import UserError
from relumt.installation import Revision, describe_fairseq, find_revision
from relumt.process import KernelSetting, kernel_choice, wants_triton
from relumt.runs.flags import Facts

Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

COMPARED_VERSIONS = ("torch", "fairseq", "relumt")
"""Packages whose version affects the result of training and of translation."""

CPU_INFO = Path("/proc/cpuinfo")
"""Linux lists the capabilities of the CPU here."""


@dataclass(frozen=True)
class Device:
    """The device that computes.

    Attributes:
        kind: "cuda" or "cpu".
        name: name of the GPU, or the CPU's architecture.
        count: how many there are.
        precision: precision of training; bf16 on a CPU means autocast with weights in fp32.
        fp32_backend: what computes products of fp32 on a CPU.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    count: int
    precision: Precision
    fp32_backend: Literal["default", "onednn"] = "default"

    def train_flags(self) -> list[str]:
        """Return fairseq-train's flags that select the device and the precision."""
        prefix = "cpu-" if self.kind == "cpu" else ""
        precision = [] if self.precision == "fp32" else [f"--{prefix}{self.precision}"]
        return self.generate_flags() + precision

    def generate_flags(self) -> list[str]:
        """Return fairseq-generate's flags that select the device."""
        return ["--cpu"] if self.kind == "cpu" else []

    def __str__(self) -> str:
        several = f"{self.count} × " if self.count > 1 else ""
        backend = "" if self.fp32_backend == "default" else f", {self.fp32_backend}"
        return f"{several}{self.name} ({self.kind}, {self.precision}{backend})"


@dataclass(frozen=True)
class Kernels:
    """What chooses and compiles the fused kernels of attention.

    Attributes:
        setting: the value of RELUMT_KERNELS.
        triton: version of Triton, None if it is not installed.
    """

    setting: KernelSetting
    triton: str | None


@dataclass(frozen=True)
class Environment:
    """The software and hardware of training or translation.

    Attributes:
        versions: versions of packages.
        revision: revision of relumt.
        device: what computes.
        kernels: what chooses and compiles attention's kernels.
    """

    versions: dict[str, str]
    revision: Revision
    device: Device
    kernels: Kernels

    @property
    def relumt(self) -> str:
        """The revision of relumt, or its version if it is not run from a checkout."""
        return self.revision.describe(self.versions.get("relumt", "of unknown version"))

    @property
    def may_run_triton(self) -> bool:
        """Whether results can depend on Triton: on a GPU unless RELUMT_KERNELS=reference, on a CPU if it is "fused"."""
        return wants_triton(self.kernels.setting, self.device.kind)

    def facts(self) -> Facts:
        """Return what results depend on. Commits may differ in documentation only, so the hash of the code counts."""
        triton = {"kernels triton": self.kernels.triton} if self.may_run_triton else {}
        return {
            **{f"version {name}": self.versions.get(name) for name in COMPARED_VERSIONS},
            "revision code": self.revision.code,
            **{f"device {name}": value for name, value in asdict(self.device).items()},
            "kernels setting": self.kernels.setting,
            **triton,
        }

    def in_precision(self, precision: Precision) -> "Environment":
        """Return this environment with another precision: translation does not take that of training."""
        return replace(self, device=replace(self.device, precision=precision))


def current_environment(device: Device) -> Environment:
    """Describe the environment of this process, computing on `device`.

    Raises:
        UserError: RELUMT_KERNELS is invalid, or fairseq is missing.
    """
    return Environment(versions(), revision(), device, Kernels(kernel_choice(), installed_version("triton")))


def find_device(precision: Precision | None) -> Device:
    """Return the GPUs that torch sees, with fp16 by default, or else the CPU with fp32.

    The default is fp16, not bf16, so that all architectures train in the same precision: fairseq's own take --bf16 as
    a request for a TPU (`relumt.plugin.model.mechanism_transformer` undoes that for ours).

    Args:
        precision: what the user asked for, None for the default.

    Raises:
        UserError: the CPU cannot train in the precision, or would be slower than in fp32.
    """
    if not version("torch").endswith("+cpu"):  # a build for CPUs only is recognized without the slow import
        import torch

        if torch.cuda.is_available():
            return Device("cuda", torch.cuda.get_device_name(), torch.cuda.device_count(), precision or "fp16")
    if precision == "fp16":
        raise UserError("PRECISION=fp16 needs a GPU, but torch sees none; unset PRECISION to train in fp32")
    if precision == "bf16":
        from relumt.plugin.cpu_products import has_fast_bf16

        if not has_fast_bf16():
            raise UserError(
                "PRECISION=bf16 needs a GPU or a CPU with AVX512-BF16 or AMX, and this machine has neither: it would "
                "be slower than fp32; unset PRECISION to train in fp32"
            )
    return Device("cpu", platform.machine(), 1, precision or "fp32", find_fp32_backend())


def find_fp32_backend() -> Literal["default", "onednn"]:
    """Return what computes products of fp32 on this CPU; "default" without importing torch if AVX-512 is missing."""
    if CPU_INFO.is_file() and "avx512" not in CPU_INFO.read_text(encoding="utf-8", errors="replace"):
        return "default"
    from relumt.plugin.cpu_products import select_fp32_backend

    return select_fp32_backend()


def cpu_name() -> str:
    """Return the name that Linux gives the processor, elsewhere its architecture.

    Virtual machines may report one name for several generations; family, model and stepping tell them apart.
    """
    text = CPU_INFO.read_text(encoding="utf-8") if CPU_INFO.is_file() else ""
    values = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.+)$", text, re.MULTILINE))
    if len(values) < 4:
        return values.get("model name", platform.machine())
    return "{model name} (family {cpu family}, model {model}, stepping {stepping})".format_map(values)


def versions() -> dict[str, str]:
    """Return the versions of everything that results may depend on; raise UserError if fairseq is missing."""
    packages = {name: version(name) for name in ("torch", "sacrebleu", "sacremoses")}
    return {
        "python": platform.python_version(),
        "fairseq": describe_fairseq(),
        "relumt": relumt.__version__,
    } | packages


def installed_version(package: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def revision() -> Revision:
    """Return the revision of relumt."""
    return find_revision(Path(relumt.__file__).parent)


def describe_revision() -> str:
    """Return the revision of relumt that is running, or its version if it is not run from a checkout."""
    return revision().describe(relumt.__version__)
