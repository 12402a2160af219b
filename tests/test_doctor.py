"""`relumt doctor` on the command line and its checks, on this machine and where what they check is broken."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relumt.cli import main
from relumt.doctor import Check, hardware, report
from relumt.errors import UserError
from relumt.fairseq_version import HOW_TO_INSTALL
from tests.fairseq_cases import write_distribution, write_fairseq

PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"
DOCUMENTED = re.findall(r"^ok       (.+?): ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
"""Names in the example of docs/doctor.md."""


def check_good():
    return Check("good", "ok", "/folder\nwith a line break")


def check_slow():
    return Check("slow", "warning", "no compiler", "install gcc")


def check_two_words():
    raise ImportError("no module named x\nsecond line")


def check_setting():
    raise UserError("RELUMT_KERNELS is 'fast'")


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Run `relumt doctor` with these checks and no GPU, and return its exit status and what it prints."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    def run(*checks, arguments=()):
        monkeypatch.setattr(doctor_module, "CHECKS", checks)
        status = 0
        try:
            main(["doctor", *arguments])
        except SystemExit as ended:
            status = ended.code
        return status, capsys.readouterr()

    return run


def test_warnings_leave_the_exit_status_at_0(doctor):
    assert doctor(check_good, check_slow) == (
        0,
        (
            "ok       good: /folder\\nwith a line break\n"
            "warning  slow: no compiler\n"
            "         install gcc\n", "",
        ),
    )  # fmt: skip


def test_an_error_is_exit_status_1_after_all_checks(doctor):
    status, printed = doctor(check_two_words, check_setting, check_good)
    assert status == 1
    assert printed.out.splitlines()[:2] == [
        "error    two words: ImportError: no module named x", "error    setting: RELUMT_KERNELS is 'fast'",
    ]  # fmt: skip
    assert "ok       good" in printed.out
    assert printed.err == "relumt: error: training needs what is broken: two words, setting; follow the advice above\n"


def test_kernels_are_checked_on_one_gpu_of_each_model(doctor, monkeypatch):
    names, checked = ["A100", "T4", "A100"], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    monkeypatch.setattr(doctor_module, "report_kernels", checked.append)
    assert doctor(check_good)[0] == 0
    assert checked == ["cuda:0", "cuda:1"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: torch.ones(1).no_such_attribute)
    assert doctor(check_two_words)[0] == 1


@pytest.mark.parametrize("argument", ["--tune", "now"])
def test_unknown_arguments_are_refused(doctor, argument):
    assert doctor(arguments=[argument])[0] == 2


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_ends_it():
    command = [sys.executable, "-P", "-m", "relumt.cli", "doctor"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("ok       relumt: ")
    process.stdout.close()
    assert (process.wait(120), process.stderr.read()) == (141, "")


@pytest.mark.parametrize("function", report.CHECKS)
def test_nothing_is_broken_here(function, monkeypatch):
    monkeypatch.delenv("RELUMT_KERNELS", raising=False)
    found = report.run_check(function)
    assert found.status in ("ok", "warning") and found.detail and "\n" not in found.detail, found
    assert found.name == DOCUMENTED[report.CHECKS.index(function)]


# Software


def test_missing_and_old_packages_are_named(monkeypatch):
    required = ["torch>=99", "no-such-package", "sacrebleu>=2.4", "plotly>=99; extra == 'report'"]
    monkeypatch.setattr(doctor_module, "requires", lambda _: required)
    assert report.check_packages()[1:3] == (
        "error",
        f"torch>=99 is required, found {importlib.metadata.version('torch')}; no-such-package is required, found none",
    )


@pytest.fixture
def dummies(monkeypatch, tmp_path):
    """A folder of packages that is searched in place of all others, for a fairseq that registers without errors."""
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(doctor_module, "try_each", lambda function, items: [""])
    return tmp_path


def test_a_missing_or_untested_fairseq_is_an_error(dummies, monkeypatch):
    assert report.run_check(report.check_fairseq)[1:3] == (
        "error", f"fairseq is not installed; run {HOW_TO_INSTALL}",
    )  # fmt: skip
    write_fairseq(dummies, "0.12.2")
    found = report.run_check(report.check_fairseq)
    assert found.status == "error" and f"found 0.12.2 in {dummies}/fairseq" in found.detail
    monkeypatch.setenv("RELUMT_FAIRSEQ", "any")
    found = report.check_fairseq()
    assert found.status == "warning" and "relumt was not tested with it" in found.detail


def test_a_fairseq_that_shadows_or_overwrites_another_is_named(dummies, tmp_path_factory, monkeypatch):
    checkout = tmp_path_factory.mktemp("checkout")
    write_fairseq(checkout, "0.12.2")
    write_distribution(dummies, "fairseq", "0.12.2", editable=checkout)
    write_fairseq(dummies, "0.12.3.1")
    write_distribution(dummies, "fairseq-fixed", "0.12.3.1")
    detail = f"fairseq-fixed 0.12.3.1, imported from {dummies}/fairseq"
    assert report.check_fairseq()[1:3] == ("warning", f"{detail}, not from fairseq")
    monkeypatch.setattr(doctor_module, "try_each", lambda function, items: ["ModuleNotFoundError: No module named 'x'"])
    assert report.check_fairseq()[1:3] == (
        "error", f"{detail}, cannot be imported with relumt: ModuleNotFoundError: No module named 'x'",
    )  # fmt: skip
    write_distribution(dummies, "fairseq-other", "0.12.3.1")
    found = report.check_fairseq()
    assert found.status == "error" and found.detail.endswith("they overwrite each other")


# Hardware


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that torch sees two GPUs, which compute correctly."""
    properties = SimpleNamespace(name="NVIDIA H100", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(hardware, "try_each", lambda function, items: ["" for _ in items])


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """A command that finds a GPU, whatever torch sees."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 570.86.15; echo 570.86.15\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


def test_gpus_are_described(gpu, nvidia_smi, monkeypatch):
    one = "NVIDIA H100, 80 GiB, compute capability 9.0"
    assert hardware.check_gpus() == ("GPUs", "ok", f"{one}; {one}; driver 570.86.15", "")
    monkeypatch.setattr(hardware, "try_each", lambda function, items: ["", "no kernel image is available"])
    assert hardware.check_gpus()[1:3] == ("error", "GPU 1: no kernel image is available")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AssertionError("Torch not compiled with CUDA enabled"), "Torch not compiled with CUDA"),
        (RuntimeError("The NVIDIA driver on your system is too old (found version 11040)."), "too old"),
        (None, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_a_warning(monkeypatch, nvidia_smi, error, reason):
    def init():
        if error:
            raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    found = hardware.check_gpus()
    assert found.status == "warning" and reason in found.detail and "driver 570.86.15" in found.detail


@pytest.mark.parametrize(
    ("setting", "sees_gpu", "capability", "status", "detail"),
    [
        ("auto", False, (9, 0), "ok", "PyTorch operators on the CPU"),
        ("auto", True, (9, 0), "ok", "Triton where a kernel agrees with float64"),
        ("auto", True, (7, 5), "ok", "compute capability 7.5"),
        ("reference", True, (9, 0), "ok", "as asked for"),
        ("fused", True, (9, 0), "warning", "without a self-check"),
    ],
)
def test_the_setting_of_kernels_is_explained(gpu, monkeypatch, setting, sees_gpu, capability, status, detail):
    pytest.importorskip("triton")
    monkeypatch.setenv("RELUMT_KERNELS", setting)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees_gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    found = hardware.check_kernel_setting()
    assert (found.name, found.status) == (f"RELUMT_KERNELS={setting}", status) and detail in found.detail
