"""Read the machine code of compiled kernels."""

import re
import subprocess
import tempfile
from pathlib import Path

import triton

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
