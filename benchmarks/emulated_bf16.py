#!/usr/bin/env python3
"""Train in bf16 on a CPU without bf16 instructions, where products of bf16 take tens of times as long as in fp32.

Products of bf16 are computed in fp32 and rounded to bf16. AVX512-BF16 does the same up to the order of summation: it
multiplies exactly, sums in fp32, and rounds once. So what is trained here shows what bf16 costs in quality; how fast it
is has to be measured elsewhere. Use this file as the Python of the scripts, with a RUNS folder of its own:

    PYTHON=benchmarks/emulated_bf16.py PRECISION=bf16 RUNS=runs_emulated_bf16 scripts/run.sh multi30k_de_en reluformer

The name of the device in run.json says "emulated bf16". Runs resume as usual. Without the scripts:

    benchmarks/emulated_bf16.py -m fairseq_cli.train DATA --cpu --cpu-bf16 …
"""

import os
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

EMULATED_MODULES = ("relumt.cli", "fairseq_cli.train")
"""Modules that run with emulated products; everything else, such as translation in fp32, runs in a plain Python."""

PRODUCTS = ("mm", "bmm")
PRODUCTS_WITH_SUM = ("addmm", "baddbmm")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def main() -> None:
    """Run `[-P] -m MODULE ARGUMENTS…` or any other arguments of Python."""
    arguments = sys.argv[1:]
    environment = ROOT / ".venv"
    python = str(environment / "bin" / "python") if environment.is_dir() else sys.executable
    module, *rest = arguments[arguments.index("-m") + 1 :] if "-m" in arguments[:2] else [""]
    if module not in EMULATED_MODULES:
        os.execv(python, [python, *arguments])
    if environment.is_dir() and Path(sys.prefix).resolve() != environment.resolve():
        os.execv(python, [python, __file__, *arguments])
    sys.path[0] = str(ROOT)
    sys.argv = [module, *rest]
    with emulated_bf16():
        if module == "relumt.cli":
            name_device()
        else:
            import relumt

            relumt.register()  # fairseq registers nothing of a package that is imported already
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def name_device() -> None:
    """Let run.json say that bf16 is emulated."""
    from relumt.runs import environment

    find_device = environment.find_device

    def find_emulated_device(precision: environment.Precision | None) -> environment.Device:
        device = find_device(precision)
        return replace(device, name=f"{device.name}, emulated bf16") if device.precision == "bf16" else device

    environment.find_device = find_emulated_device


@contextmanager
def emulated_bf16() -> Iterator[None]:
    """Compute products of bf16 on the CPU in fp32, and pretend that it has instructions for them."""
    import torch

    from relumt.plugin import cpu_products

    has_fast_bf16 = cpu_products.has_fast_bf16
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*[Oo]verrid")
            for name in (*PRODUCTS, *PRODUCTS_WITH_SUM, ATTENTION, f"{ATTENTION}_backward"):
                library.impl(name, rounded(name), "CPU", with_keyset=True)
            for name in (*PRODUCTS, *PRODUCTS_WITH_SUM):
                library.impl(f"{name}.out", rounded_out(name), "CPU", with_keyset=True)
            for name in PRODUCTS_WITH_SUM:
                library.impl(f"{name}_", rounded_in_place(name), "CPU", with_keyset=True)
        cpu_products.has_fast_bf16 = lambda: True
        try:
            yield
        finally:
            cpu_products.has_fast_bf16 = has_fast_bf16


def find_kernel(name: str) -> Callable[..., Any]:
    """Return PyTorch's kernel of an operator on a CPU; it takes the set of dispatch keys first."""
    import torch

    return torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed


def rounded(name: str) -> Callable[..., Any]:
    """Return an operator that computes in fp32 and rounds to bf16 if its first argument is in bf16."""
    import torch

    kernel = find_kernel(name)

    def compute(keys: object, first: Any, *others: Any, **options: Any) -> Any:
        if first.dtype is not torch.bfloat16:
            return kernel(keys, first, *others, **options)
        results = kernel(keys, *map(to_fp32, (first, *others)), **{key: to_fp32(x) for key, x in options.items()})
        if isinstance(results, torch.Tensor):
            return results.bfloat16()
        # The attention's sum of exponentials, which its backward pass takes, is in fp32 as in PyTorch.
        return tuple(x.bfloat16() if x.dim() == first.dim() else x for x in results)

    return compute


def rounded_out(name: str) -> Callable[..., Any]:
    """Return the variant of an operator that writes to `out`."""
    import torch

    exact, compute = find_kernel(f"{name}.out"), rounded(name)

    def write(keys: object, first: Any, *others: Any, out: Any, **options: Any) -> Any:
        if first.dtype is not torch.bfloat16:
            return exact(keys, first, *others, out=out, **options)
        result = compute(keys, first, *others, **options)
        return out.resize_(result.shape).copy_(result)

    return write


def rounded_in_place(name: str) -> Callable[..., Any]:
    """Return the variant of an operator that overwrites its first argument."""
    import torch

    exact, compute = find_kernel(name), rounded(name.removesuffix("_"))

    def write(keys: object, first: Any, *others: Any, **options: Any) -> Any:
        if first.dtype is not torch.bfloat16:
            return exact(keys, first, *others, **options)
        return first.copy_(compute(keys, first, *others, **options))

    return write


def to_fp32(x: Any) -> Any:
    """Return a tensor of bf16 in fp32, and anything else as it is."""
    import torch

    return x.float() if isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16 else x


if __name__ == "__main__":
    main()
