"""What a run is made with: versions, the revision of relumt, the device and its precision."""

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import relumt
from relumt.errors import UserError

Precision = Literal["fp32", "bf16", "fp16"]

FAIRSEQ_PACKAGES = ("fairseq-fixed", "fairseq")


@dataclass(frozen=True)
class Device:
    """What trains: kind "cuda" or "cpu", its name, how many there are, and the precision of training."""

    kind: Literal["cuda", "cpu"]
    name: str
    count: int
    precision: Precision

    def train_flags(self) -> list[str]:
        """fairseq-train's flags for it."""
        precision = [] if self.precision == "fp32" else [f"--{self.precision}"]
        return self.generate_flags() + precision

    def generate_flags(self) -> list[str]:
        """fairseq-generate's flags for it."""
        return ["--cpu"] if self.kind == "cpu" else []

    def __str__(self) -> str:
        several = f"{self.count} × " if self.count > 1 else ""
        return f"{several}{self.name} ({self.kind}, {self.precision})"


def find_device(precision: Precision | None) -> Device:
    """The GPUs that torch sees, in fp16; without any, the CPU in fp32.

    fp16 and not bf16, because every architecture is to train in the same precision, and fairseq's own take --bf16
    for a TPU (relumt.models.mechanism_transformer.keep_gpu_under_bf16).

    precision: asked for by the user, or None.

    Raises:
        UserError: half precision is asked for on a CPU.
    """
    if not sees_gpu():
        if precision not in (None, "fp32"):
            raise UserError(f"PRECISION={precision} needs a GPU and torch sees none; leave it out to train in fp32")
        return Device("cpu", platform.machine(), 1, "fp32")
    import torch

    return Device("cuda", torch.cuda.get_device_name(), torch.cuda.device_count(), precision or "fp16")


def sees_gpu() -> bool:
    """Whether torch sees a GPU; a build without CUDA says so in its version, which spares the seconds of importing."""
    if version("torch").endswith("+cpu"):
        return False
    import torch

    return torch.cuda.is_available()


def versions() -> dict[str, str]:
    """Versions of everything that numbers may depend on."""
    packages = {name: version(name) for name in ("torch", "sacrebleu", "sacremoses")}
    return {"python": platform.python_version(), "fairseq": fairseq_version(), "relumt": relumt.__version__} | packages


def fairseq_version() -> str:
    """Package and version, since fairseq goes by more than one name."""
    for package in FAIRSEQ_PACKAGES:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    raise UserError("fairseq is not installed; pip install 'fairseq-fixed==0.12.3.1'")


def revision() -> dict[str, str]:
    """The commit of relumt's checkout, the code of the package in it, and a hash of what was changed since.

    Two commits with the same `code` differ in other files alone. All are empty for a relumt that is not run from
    a checkout: its version says all there is.
    """
    package = Path(relumt.__file__).resolve().parent
    if not git(package, "ls-files", "--", "__init__.py"):
        return {"commit": "", "code": "", "dirty": ""}
    commit, code = (
        (git(package, "rev-parse", "--verify", "-q", name) or b"").decode().strip() for name in ("HEAD", "HEAD:./")
    )
    return {"commit": commit, "code": code, "dirty": change_since_commit(package)}


def change_since_commit(package: Path) -> str:
    """Twelve hexadecimal digits over what differs from HEAD in `package`, new files included; empty if nothing."""
    new = (git(package, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or b"").split(b"\0")
    change = git(package, "diff", "HEAD", "--", ".") or b""
    for name in sorted(filter(None, new)):
        change += name + b"\0" + (package / name.decode()).read_bytes()
    return hashlib.sha256(change).hexdigest()[:12] if change else ""


def git(folder: Path, *arguments: str) -> bytes | None:
    """Output of a git command in `folder`; None where there is no git or it fails."""
    try:
        result = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None
