"""`relumt doctor`: its checks on this machine and where what they check is broken; crashes of a child process."""

import importlib.metadata
import multiprocessing.util
import os
import platform
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from relumt import doctor
from relumt.attention.kernels import self_check
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.cli import main
from relumt.doctor import Check, try_each
from relumt.errors import UserError
from relumt.installation import HOW_TO_INSTALL
from relumt.runs import environment
from tests.fairseq_cases import write_fairseq

WRONG = "the output differs from float64 by 0.01 (allowed: 0.001)"
INHIBITOR = InhibitorConfig(half=False, head_dim=8, value_dim=8)


def check_good():
    return Check("good", "ok", "/folder\nwith a line break")


def check_slow():
    return Check("slow", "warning", "no compiler", "install gcc")


def check_two_words():
    raise ImportError("no module named x\nsecond line")


def check_setting():
    raise UserError("RELUMT_KERNELS is 'fast'")


def test_every_check_is_printed_and_an_error_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(doctor, "CHECKS", (check_good, check_slow))
    main(["doctor"])
    lines = "ok       good: /folder\\nwith a line break\nwarning  slow: no compiler\n         install gcc\n"
    assert capsys.readouterr() == (lines, "")
    monkeypatch.setattr(doctor, "CHECKS", (check_two_words, check_setting, check_good))
    with pytest.raises(SystemExit, match="1"):
        main(["doctor"])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == [
        "error    two words: ImportError: no module named x", "error    setting: RELUMT_KERNELS is 'fast'",
    ]  # fmt: skip
    assert "ok       good" in printed.out
    assert printed.err == "relumt: error: training needs what is broken: two words, setting; follow the advice above\n"


def test_kernels_are_checked_on_one_gpu_of_each_model(monkeypatch):
    names, checked = ["A100", "T4", "A100"], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    monkeypatch.setattr(doctor, "report_kernels", checked.append)
    monkeypatch.setattr(doctor, "CHECKS", (check_good,))
    doctor.report_machine()
    assert checked == ["cuda:0", "cuda:1"]


def test_nothing_is_broken_here(monkeypatch):
    monkeypatch.delenv("RELUMT_KERNELS", raising=False)
    monkeypatch.setattr(doctor, "try_each", lambda function, items: ["" for _ in items])
    found = [doctor.run_check(function) for function in doctor.CHECKS]
    assert [check.name for check in found] == "relumt packages torch fairseq CPU GPUs RELUMT_KERNELS=auto".split()
    assert all(check.status in ("ok", "warning") and check.detail and "\n" not in check.detail for check in found)


# Child processes


def fail(item):
    """Fail in a way that a number selects; else print something."""
    match item:
        case 2:
            return WRONG
        case 3:
            os.write(2, b"first\nCUDA error: an illegal memory access was encountered\n")
            os._exit(134)
        case 5:
            time.sleep(600)
        case 6:
            raise RuntimeError("PTXASError: Internal Triton PTX codegen error\n`ptxas` stderr: ...")
    print("noise")
    return str(os.getpid()) if item == 7 else ""


def touch_at_the_end(path):
    """Create a file when this process ends by itself."""
    multiprocessing.util.Finalize(None, path.touch, exitpriority=0)


def test_a_process_without_problems_ends_by_itself(tmp_path):
    """A killed one leaves the semaphores of libraries that it has imported, about which Python warns."""
    assert [*try_each(touch_at_the_end, [tmp_path / "ended"])] == [""] and (tmp_path / "ended").exists()


@pytest.mark.slow
def test_a_failed_call_does_not_end_the_others(capfd):
    *problems, first, second = try_each(fail, [*range(7), 1, 7, 7], time_limit=15)
    assert problems == [
        "", "", WRONG, "its process crashed: CUDA error: an illegal memory access was encountered", "",
        "no result within 15 seconds", "RuntimeError: PTXASError: Internal Triton PTX codegen error", "",
    ]  # fmt: skip
    assert len({first, second, str(os.getpid())}) == 3 and not Path("/proc", first).exists()
    assert capfd.readouterr() == ("", "")


def test_the_report_names_what_auto_uses(monkeypatch, capsys):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(self_check, "all_configs", lambda device: [InhibitorConfig(False, 3, 3), INHIBITOR])
    crashed = "its process crashed: CUDA error: an illegal memory access was encountered"
    monkeypatch.setattr(doctor, "try_each", lambda function, items: [crashed, ""])
    doctor.report_kernels("cpu")
    printed = capsys.readouterr().out
    name = "Inhibitor in float32, head size"
    assert f"ok       {name} 8, value size 8: agrees with float64; auto uses Triton\n" in printed
    assert f"warning  {name} 3, value size 3: {crashed}; auto uses PyTorch operators\n" in printed
    assert "auto uses Triton for 1 of 2 kinds of calls on cpu" in printed and "to an issue" in printed
    monkeypatch.delenv("TRITON_INTERPRET")
    doctor.report_kernels("cpu")
    assert capsys.readouterr().out.startswith("warning  kernels on cpu: not checked: ")


# Software


def test_missing_and_old_packages_are_named(monkeypatch):
    required = ["torch>=99", "no-such-package", "sacrebleu>=2.4", "plotly>=99; extra == 'report'"]
    monkeypatch.setattr(doctor, "requires", lambda _: required)
    assert doctor.check_packages()[1:3] == (
        "error",
        f"torch>=99 is required, found {importlib.metadata.version('torch')}; no-such-package is required, found none",
    )


@pytest.fixture
def dummies(monkeypatch, tmp_path):
    """A folder of packages that is searched in place of all others, for a fairseq that registers without errors."""
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(doctor, "try_each", lambda function, items: [""])
    return tmp_path


def test_a_missing_or_untested_fairseq_is_an_error(dummies, monkeypatch):
    assert doctor.run_check(doctor.check_fairseq)[1:3] == ("error", f"fairseq is not installed; run {HOW_TO_INSTALL}")
    write_fairseq(dummies, "0.12.2")
    found = doctor.run_check(doctor.check_fairseq)
    assert found.status == "error" and f"found 0.12.2 in {dummies}/fairseq" in found.detail
    monkeypatch.setenv("RELUMT_FAIRSEQ", "any")
    found = doctor.check_fairseq()
    assert found.status == "warning" and "relumt was not tested with it" in found.detail


def test_a_fairseq_that_cannot_be_imported_is_an_error(dummies, monkeypatch):
    write_fairseq(dummies, "0.12.3.1")
    detail = f"fairseq-fixed 0.12.3.1, imported from {dummies}/fairseq"
    assert doctor.check_fairseq()[1:3] == ("ok", detail)
    monkeypatch.setattr(doctor, "try_each", lambda function, items: ["ModuleNotFoundError: No module named 'x'"])
    assert doctor.check_fairseq()[1:3] == (
        "error", f"{detail}, cannot be imported with relumt: ModuleNotFoundError: No module named 'x'",
    )  # fmt: skip


# Hardware


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n" * 2,
         "AMD EPYC (family 25, model 17, stepping 1)"),
        ("model name\t: ARMv7 Processor rev 4\n", "ARMv7 Processor rev 4"),
        ("CPU part\t: 0xd0c\n", platform.machine()),
    ],
)  # fmt: skip
def test_processors_of_one_name_are_told_apart(monkeypatch, tmp_path, info, name):
    (tmp_path / "cpuinfo").write_text(info)
    monkeypatch.setattr(environment, "CPU_INFO", tmp_path / "cpuinfo")
    assert environment.cpu_name() == name


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Pretend that nvidia-smi and torch see two GPUs, which compute correctly."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 570.86.15; echo 570.86.15\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    properties = SimpleNamespace(name="NVIDIA H100", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(doctor, "try_each", lambda function, items: ["" for _ in items])


def test_gpus_are_described_and_one_that_torch_does_not_see_is_named(gpu, monkeypatch):
    one = "NVIDIA H100, 80 GiB, compute capability 9.0"
    assert doctor.check_gpus() == ("GPUs", "ok", f"{one}; {one}; driver 570.86.15", "")
    monkeypatch.setattr(doctor, "try_each", lambda function, items: ["", "no kernel image is available"])
    assert doctor.check_gpus()[1:3] == ("error", "GPU 1: no kernel image is available")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for error in (RuntimeError("The NVIDIA driver on your system is too old"), None):
        monkeypatch.setattr(torch.cuda, "init", Mock(side_effect=error))
        found = doctor.check_gpus()
        reason = "The NVIDIA driver on your system is too old" if error else "is CUDA_VISIBLE_DEVICES set?"
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
    found = doctor.check_kernel_setting()
    assert (found.name, found.status) == (f"RELUMT_KERNELS={setting}", status) and detail in found.detail
