"""The Triton kernels compile for a GPU, which the interpreter does not show: for sm_90, where there is none."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from relumt.attention.kernels import inhibitor_triton, pointwise_triton

NONE = ("Keys", "Bounds", "Bias", "Total", "SLogS", "OfTotal", "OfSLogS")

def compiled(kernel, type_, absent, constants):
    signature, constexprs = {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in absent or name in constants:
            signature[name], constexprs[(place,)] = "constexpr", constants.get(name)
        elif name in ("Factor", "Bias", "Total", "SLogS", "OfTotal", "OfSLogS", "Shift", "OfQueries"):
            signature[name] = "*fp32"
        elif name == "Keys":
            signature[name] = "*u8"
        elif name == "Bounds":
            signature[name] = "*i32"
        elif name[0].isupper() and name not in ("H", "T", "S"):
            signature[name] = f"*{type_}"
        else:
            signature[name] = "fp32" if name in ("dropout", "rate") else "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})

common = {"D": 64, "BLOCK_D": 64, "CAUSAL": True}
which, whole = sys.argv[1], sys.argv[2] == "whole"
absent = () if whole else NONE
if which == "pointwise":
    more = {"ACTIVATION": "relu", "STATISTICS": whole, "DROPOUT": whole, "BLOCK_T": 64, "BLOCK_S": 64}
    module, type_ = pointwise_triton, "bf16"
else:
    more = {"V_SIZE": 64, "BLOCK_V": 64, "DROPOUT": whole, "BLOCK": 32}
    module, type_ = inhibitor_triton, "fp32"
for name in ("forward", "backward_of_queries", "backward_of_keys"):
    compiled(getattr(module, name), type_, absent, common | more)
"""


@pytest.mark.parametrize("given", ["whole", "bare"])
@pytest.mark.parametrize("module", ["pointwise", "inhibitor"])
def test_kernels_compile_with_and_without_what_is_optional(module, given, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, module, given]
    done = subprocess.run(
        command, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
