"""Builds the C kernels with the installed compiler, and keeps the libraries in the user's cache folder."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from relumt.atomic_output import atomic_file
from relumt.child_processes import signal_name
from relumt.errors import AttemptFailedError, UserError
from relumt.runs.environment import CPU_INFO

SOURCES = ("kernels.c", "vectors.h", "kernels.py", "measurement.py", "problem.py")
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared")
TIME_LIMIT = 120
"""Seconds that a compiler may take; a second is normal."""


@dataclass(frozen=True)
class InstructionSet:
    """What the compiler may use.

    Attributes:
        march: the value of the compiler's flag -march.
        needs: what Linux lists in /proc/cpuinfo if a CPU has all of it.
    """

    march: str
    needs: frozenset[str]

    def runs_here(self) -> bool:
        """Return whether this CPU has the instructions."""
        return self.needs <= cpu_features()


V3 = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
INSTRUCTION_SETS = {
    "SSE2": InstructionSet("x86-64", frozenset({"sse2"})),
    "AVX2": InstructionSet("x86-64-v3", V3),
    "AVX-512": InstructionSet("x86-64-v4", V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Name → instruction set, with vectors of 128, 256 and 512 bits."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler.

    Attributes:
        command: its program, and arguments that $CC gives it.
        version: the first line that it prints about itself.
    """

    command: tuple[str, ...]
    version: str

    def flags(self, instruction_set: InstructionSet, width: int) -> list[str]:
        """Return the flags that build the kernels with sums of `width` bits."""
        return [*FLAGS, f"-march={instruction_set.march}", f"-DACCUMULATOR_BITS={width}"]

    def build(self, instruction_set: InstructionSet, width: int) -> Path:
        """Return the library for an instruction set, from the cache if it was built before.

        Raises:
            AttemptFailedError: the compiler failed, crashed, took too long, or does not know a flag.
        """
        flags = self.flags(instruction_set, width)
        key = hashlib.sha256(repr((source_digest(), self, flags)).encode()).hexdigest()[:16]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        library = cache / "relumt" / "integer_attention" / f"{instruction_set.march}-{width}-{key}.so"
        if not library.is_file():
            with atomic_file(library) as unfinished:
                source = files(__package__).joinpath("kernels.c")
                self._run([*flags, str(source), "-o", str(unfinished)])
        return library

    def _run(self, arguments: list[str]) -> None:
        try:
            done = subprocess.run([*self.command, *arguments], capture_output=True, timeout=TIME_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise self._failure(f"took more than {TIME_LIMIT} seconds", arguments) from None
        if done.returncode < 0:
            raise self._failure(f"was killed by {signal_name(done.returncode)}", arguments)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            reason = next((line for line in lines if "error" in line), (lines or ["it does not say why"])[0])
            raise self._failure(f"failed: {reason[:200]}", arguments)

    def _failure(self, what: str, arguments: list[str]) -> AttemptFailedError:
        march = next(flag for flag in arguments if flag.startswith("-march="))
        return AttemptFailedError(
            f"{shlex.join(self.command)} ({self.version}) {what}, with {march}; install a newer gcc or clang, or set CC"
        )


def find_compiler() -> Compiler:
    """Return the compiler that $CC names, or else cc, gcc or clang.

    Raises:
        UserError: there is none, or it does not start.
    """
    advice = "install one (apt install gcc; dnf install gcc), or set CC"
    wanted = os.environ.get("CC", "").strip()
    try:
        command = shlex.split(wanted) if wanted else []
    except ValueError as error:
        raise UserError(f"CC={wanted}: not a command ({error}); {advice}") from None
    if not wanted:
        command = [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
        if not command:
            raise UserError(f"no C compiler: cc, gcc and clang are not on the PATH; {advice}")
    elif not shutil.which(command[0]):
        raise UserError(f"no C compiler: CC={wanted} is not a program on the PATH; {advice}")
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, timeout=TIME_LIMIT, check=False)
        version = done.stdout.decode(errors="replace").partition("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{shlex.join(command)} --version does not run ({type(error).__name__}); {advice}") from None
    if done.returncode or not version:
        raise UserError(f"{shlex.join(command)} --version failed; {advice}")
    return Compiler(tuple(command), version)


def require_x86() -> None:
    """Raise UserError if this machine has none of the instruction sets, or does not say what it has."""
    if platform.machine() not in ("x86_64", "AMD64") or not cpu_features():
        found = f"{platform.system()} on {platform.machine()}"
        raise UserError(f"the kernels need Linux on x86-64, found {found}; use another machine")


def cpu_features() -> frozenset[str]:
    """Return the features that Linux lists for this CPU; none elsewhere."""
    text = CPU_INFO.read_text(encoding="utf-8", errors="replace") if CPU_INFO.is_file() else ""
    lines = (line for line in text.splitlines() if line.startswith("flags"))
    return frozenset(next(lines, "").partition(":")[2].split())


def source_digest() -> str:
    """Return a hash of the C code and of the Python code that prepares its inputs and calls it."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update(files(__package__).joinpath(name).read_bytes())
    return digest.hexdigest()[:16]
