"""What a worker process of a benchmark answers to its coordinator, see worker_pool.py.

A request is a line on stdin and an answer is a line of JSON on stdout. Between requests a worker is blocked in reading,
so it needs no CPU time. Only torch is imported here, since a worker may run in an environment of its own.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch.cuda import reset_peak_memory_stats  # the original: fairseq_worker.py replaces torch.cuda's

BEAM = 5
"""Width of the beam search of all systems."""

PROCESS = Path("/proc/self")
"""Linux describes the process here."""


class Batches(TypedDict):
    """What all systems compute on, as fairseq collates it.

    Attributes:
        train: batches to train on.
        test: batches to translate.
        lengths: number of tokens, with </s>, of each translation of a batch in `test`.
    """

    train: list[dict[str, Any]]
    test: list[dict[str, Any]]
    lengths: list[int]


def serve(work: dict[str, Callable[[int], int]], reports: dict[str, Callable[[int], Any]] | None = None) -> None:
    """Answer requests until stdin is closed; what `work` and `reports` print goes to stderr.

    Requests:
        memory       → {"held": bytes held now, "peak": largest amount held since the last such request}
        NAME NUMBER  → {"seconds": wall time of work[NAME](NUMBER), "tokens": what it returned}
        NAME NUMBER  → reports[NAME](NUMBER)
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *numbers = line.split()
        if reports and name in reports:
            answer = reports[name](int(*numbers))
        else:
            answer = measure_memory() if name == "memory" else measure_time(work[name], int(*numbers))
        print(json.dumps(answer), file=answers)


def measure_time(work: Callable[[int], int], number: int) -> dict[str, float]:
    """Return the wall time of `work(number)`, and the number of tokens that it returns."""
    synchronize()
    start = time.perf_counter()
    tokens = work(number)
    synchronize()
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def synchronize() -> None:
    """Wait for the GPU if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure_memory() -> dict[str, int]:
    """Return the memory held now and the largest amount since the last call: tensors on a GPU, else resident memory.

    The kernel's VmHWM is read, because getrusage starts with the memory of the process that started this one. Without
    permission to reset it, the peak since the process began is returned.
    """
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        reset_peak_memory_stats()
        return {"held": torch.cuda.memory_allocated(), "peak": peak}
    status = dict(re.findall(r"^(\w+):\s*(\d+) kB$", (PROCESS / "status").read_text(encoding="utf-8"), re.MULTILINE))
    with suppress(OSError):
        (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    return {"held": int(status["VmRSS"]) * 1024, "peak": int(status["VmHWM"]) * 1024}
