"""Compile kernels for GPUs that need not be present, and read their machine code."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget

SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Compute capability → KiB of shared memory: `max_shared_memory_per_block_optin` in cuda/__device/arch_traits.h of
github.com/NVIDIA/cccl."""
DISASSEMBLER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"


def disassemble(binary: bytes) -> str:
    """Return the instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return subprocess.run([DISASSEMBLER, "-c", file.name], capture_output=True, text=True, check=True).stdout


def find_loops(binary: bytes) -> tuple[list[str], list[slice]]:
    """Return the instructions, and where their loops are, which may contain others."""
    instructions, labels, loops = [], {}, []
    for line in disassemble(binary).splitlines():
        if match := re.match(r"\s*(\.L\w+):", line):
            labels[match[1]] = len(instructions)
        elif match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line):
            instructions.append(match[1])
            target = re.search(r"BRA\b.*`\((\.L\w+)\)", match[1])
            if target and target[1] in labels:
                loops.append(slice(labels[target[1]], len(instructions)))
    return instructions, loops


def longest_loop(binary: bytes) -> list[str]:
    """Return the instructions of the longest loop."""
    instructions, loops = find_loops(binary)
    return max((instructions[loop] for loop in loops), key=len)


@contextmanager
def compiling_for(capability: int, visit: Callable[[Any, dict[str, Any], Any], None]) -> Iterator[None]:
    """Compile what is launched inside the block, and call `visit` with the kernel, its arguments and what it became."""
    target = GPUTarget("cuda", capability, 32)
    triton.runtime.driver.set_active(mock.Mock(get_current_target=lambda: target))
    run = triton.JITFunction.run

    def compile_only(kernel, *arguments, warmup, **constants):
        named = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
        visit(kernel, named, run(kernel, *arguments, warmup=True, **constants))

    with mock.patch.object(triton.JITFunction, "run", compile_only):
        yield


def run_compiler(cache: Path, *arguments: object) -> list[str]:
    """Run Python with Triton's compiler instead of its interpreter, and return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment | {"TRITON_CACHE_DIR": str(cache)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
