"""Each check of `relumt doctor` on this machine, and on machines where what it checks is broken."""

import importlib.metadata
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relumt.doctor import check, corpus_tools, hardware, kernel_setting, software
from relumt.doctor.checks import CHECKS
from relumt.errors import UserError
from relumt.fairseq_version import HOW_TO_INSTALL
from tests.fairseq_cases import write_distribution, write_fairseq

SLOW_CHECKS = {"check_fairseq"}

PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"
DOCUMENTED = re.findall(r"^ok       (.+?): ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
"""Names in the example of docs/doctor.md."""


def write_command(folder, name, script):
    """Write an executable of the shell to a folder and return its path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that torch sees two GPUs."""
    properties = SimpleNamespace(name="NVIDIA H100", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """A command that finds a GPU, whatever torch sees."""
    write_command(tmp_path, "nvidia-smi", "echo 570.86.15; echo 570.86.15")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.parametrize("function", [function for function in CHECKS if function.__name__ not in SLOW_CHECKS])
def test_nothing_is_broken_here(function, monkeypatch):
    monkeypatch.delenv("RELUMT_KERNELS", raising=False)
    found = check.run_check(function)
    assert found.status in ("ok", "warning"), found
    assert "\n" not in found.detail and found.detail
    assert found.name == DOCUMENTED[CHECKS.index(function)]


@pytest.mark.slow
def test_fairseq_is_found_where_it_is_installed():
    found = software.check_fairseq()
    assert found.status == "ok" and found.detail.endswith(str(Path("site-packages", "fairseq"))), found


def test_an_exception_in_a_check_is_an_error_of_its_subject():
    def check_two_words():
        raise error

    error = ImportError("libcudart.so.12: cannot open shared object file\nsecond line")
    found = check.run_check(check_two_words)
    assert found[:3] == ("two words", "error", "ImportError: libcudart.so.12: cannot open shared object file")
    error = ModuleNotFoundError("No module named 'torch'")
    assert check.run_check(check_two_words) == ("two words", "error", f"cannot be checked: {error}", "")
    error = UserError("RELUMT_KERNELS is 'fast'; it must be one of auto, fused, reference")
    assert check.run_check(check_two_words)[:3] == ("two words", "error", str(error))


# Packages


def test_missing_and_old_packages_are_named(monkeypatch):
    required = ["fairseq-fixed==0.1", "torch>=99", "no-such-package", "sacrebleu>=2.4", "plotly>=99; extra == 'report'"]
    monkeypatch.setattr(software, "requires", lambda _: required)
    found = software.check_requirements()
    assert found.status == "error"
    assert found.detail == (
        f"fairseq-fixed is 0.12.3.1 instead of ==0.1, torch is {importlib.metadata.version('torch')} instead of >=99, "
        "no-such-package is missing"
    )


def test_a_checkout_that_is_not_installed_is_a_warning(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(software, "requires", requires)
    assert software.check_requirements().status == "warning"


@pytest.fixture
def dummies(monkeypatch, tmp_path):
    """A folder of packages that is searched in place of all others, for a fairseq that registers without errors."""
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(software, "run_python", lambda code: "")
    return tmp_path


def test_a_missing_or_untested_fairseq_is_an_error(dummies, monkeypatch):
    assert software.check_fairseq()[1:3] == ("error", f"fairseq is not installed; run {HOW_TO_INSTALL}")
    write_fairseq(dummies, "0.12.2")
    found = software.check_fairseq()
    assert found.status == "error" and f"found 0.12.2 in {dummies}/fairseq" in found.detail
    monkeypatch.setenv("RELUMT_FAIRSEQ", "any")
    found = software.check_fairseq()
    assert found.status == "warning" and "relumt was not tested with it" in found.detail


def test_a_fairseq_that_shadows_a_distribution_is_a_warning(dummies, tmp_path_factory):
    checkout = tmp_path_factory.mktemp("checkout")
    write_fairseq(checkout, "0.12.2")
    write_distribution(dummies, "fairseq", "0.12.2", editable=checkout)
    write_fairseq(dummies, "0.12.3.1")
    write_distribution(dummies, "fairseq-fixed", "0.12.3.1")
    found = software.check_fairseq()
    assert found.status == "warning" and "uninstall what you do not use" in found.advice
    assert found.detail == f"fairseq-fixed 0.12.3.1, imported from {dummies}/fairseq, not from fairseq"


def test_two_distributions_that_overwrite_each_other_are_an_error(dummies):
    write_fairseq(dummies, "0.12.3.1")
    for name in ("fairseq", "fairseq-fixed"):
        write_distribution(dummies, name, "0.12.3.1")
    found = software.check_fairseq()
    assert found.status == "error" and "overwrite each other's files" in found.detail


def test_a_fairseq_that_cannot_be_imported_is_an_error(dummies, monkeypatch):
    def run_python(code):
        raise check.ChildFailedError("ModuleNotFoundError: No module named 'fairseq.tasks'")

    write_fairseq(dummies, "0.12.3.1")
    monkeypatch.setattr(software, "run_python", run_python)
    found = software.check_fairseq()
    assert found.status == "error" and "cannot be imported with relumt: ModuleNotFoundError" in found.detail


@pytest.mark.parametrize(("sees_gpu", "status"), [(True, "warning"), (False, "ok")])
def test_only_gpus_need_triton(monkeypatch, sees_gpu, status):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees_gpu)
    monkeypatch.setattr(software, "installed_version", lambda name: None)
    assert software.check_triton()[:3] == ("Triton", status, "not installed: attention uses PyTorch operators")


# Hardware


def test_gpus_are_described(gpu, nvidia_smi):
    found = hardware.check_gpus()
    one = "NVIDIA H100, 80 GiB, compute capability 9.0"
    assert found == ("GPUs", "ok", f"0: {one}; 1: {one}; driver 570.86.15", "")


@pytest.mark.parametrize(
    ("cuda", "error", "reason"),
    [
        (None, None, "torch is not built for CUDA"),
        ("13.0", RuntimeError("The NVIDIA driver on your system is too old (found version 11040)."), "too old"),
        ("13.0", None, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_a_warning(monkeypatch, nvidia_smi, cuda, error, reason):
    def init():
        if error:
            raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = hardware.check_gpus()
    assert found.status == "warning" and reason in found.detail and "driver 570.86.15" in found.detail


def test_a_gpu_that_cannot_compute_is_an_error(gpu, monkeypatch):
    def run_python(code):
        return check.run_python("raise RuntimeError('CUDA error: no kernel image is available for execution')")

    monkeypatch.setattr(hardware, "run_python", run_python)
    found = hardware.check_gpu_arithmetic()
    assert found.status == "error" and found.detail == (
        "RuntimeError: CUDA error: no kernel image is available for execution"
    )


MISSING_HEADER = """
echo 'module.c:1:10: fatal error: Python.h: No such file or directory' >&2
echo 'compilation terminated.' >&2
exit 1"""


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_compiler_without_python_headers_matters_on_a_gpu(monkeypatch, tmp_path, is_needed):
    monkeypatch.setenv("CC", write_command(tmp_path, "cc", MISSING_HEADER))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_needed)
    found = hardware.check_c_compiler()
    assert found.status == ("warning" if is_needed else "ok")
    assert "module.c:1:10: fatal error: Python.h: No such file or directory" in found.detail
    assert ("python3-dev" in found.advice) == is_needed


@pytest.mark.parametrize(
    ("compiler", "detail"),
    [
        (None, "no $CC, gcc or clang"),
        ("", "no $CC, gcc or clang"),
        ("/no/cc", "/no/cc cannot be started"),
        ("gcc -O2", "gcc -O2 cannot be started"),
    ],
)
def test_a_missing_c_compiler_is_named(gpu, monkeypatch, tmp_path, compiler, detail):
    monkeypatch.setenv("PATH", str(tmp_path))
    if compiler is None:
        monkeypatch.delenv("CC", raising=False)
    else:
        monkeypatch.setenv("CC", compiler)
    found = hardware.check_c_compiler()
    assert found.status == "warning" and detail in found.detail


def test_clang_is_used_without_gcc(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    clang = write_command(tmp_path, "clang", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.check_c_compiler() == ("C compiler", "ok", f"{clang}, for Triton on a GPU", "")


def test_a_command_that_hangs_is_ended(tmp_path):
    with pytest.raises(check.ChildFailedError, match=r"no result within 0\.2 seconds"):
        check.run_command(["sleep", "60"], time_limit=0.2)


# Tools and kernels


def test_an_old_bash_is_an_error(monkeypatch, tmp_path):
    write_command(tmp_path, "bash", "echo 3 2 '3.2.57(1)-release'")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = corpus_tools.check_bash()
    assert found[:3] == ("bash", "error", "3.2.57(1)-release is too old for scripts/ and data_prep/")
    monkeypatch.setenv("PATH", "")
    assert corpus_tools.check_bash().status == "error"


def test_a_tokenizer_with_other_rules_is_an_error(monkeypatch):
    monkeypatch.setattr("relumt.corpora.tokenization.tokenize", lambda lines, language: lines)
    assert corpus_tools.check_sacremoses().status == "error"


@pytest.mark.parametrize(
    ("setting", "sees_gpu", "status", "detail"),
    [
        ("auto", False, "ok", "PyTorch operators on the CPU"),
        ("reference", True, "ok", "as asked for"),
        ("fused", False, "warning", "interpreter"),
        ("fused", True, "warning", "even where a kernel would fail"),
        ("auto", True, "ok", "Triton where a kernel agrees with float64"),
    ],
)
def test_the_setting_of_kernels_is_explained(gpu, monkeypatch, setting, sees_gpu, status, detail):
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("RELUMT_KERNELS", setting)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees_gpu)
    found = kernel_setting.check_kernel_setting()
    assert (found.name, found.status) == (f"RELUMT_KERNELS={setting}", status) and detail in found.detail


def test_a_gpu_before_ampere_is_explained(gpu, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.delenv("RELUMT_KERNELS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 7.5" in kernel_setting.check_kernel_setting().detail


def test_the_interpreter_on_a_gpu_is_a_warning(gpu, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET is 1" in kernel_setting.check_kernel_setting().detail
