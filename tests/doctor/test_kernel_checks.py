"""Checks and times of kernels in child processes, with fakes and in Triton's interpreter; no GPU is needed."""

import functools
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from relumt.attention.kernels import self_check
from relumt.attention.kernels.pointwise_launch_configs import call_kind
from relumt.attention.kernels.self_check import all_configs, check_config
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from relumt.attention.kernels.verdict_cache import VerdictCache
from relumt.doctor import kernel_checks, kernel_speeds, report
from relumt.doctor.isolated_calls import Failure
from relumt.doctor.kernel_checks import check_kernels
from relumt.doctor.kernel_speeds import KERNEL, format_times, time_kernels

CPU = torch.device("cpu")
ENVIRONMENT = {"gpu": "a GPU"}
SHORT_RELU = all_configs()[0]
INHIBITOR = InhibitorConfig(half=False, head_dim=8, value_dim=8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path))
    monkeypatch.setattr(kernel_checks, "environment", lambda device: ENVIRONMENT)


@pytest.fixture
def interpreter(monkeypatch):
    """Let Triton interpret kernels in child processes."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def fake_check(config, device):
    """Fail in a way that the head size selects."""
    if config.head_dim == 2:
        return "the output differs from float64 by 0.01 (allowed: 0.001)"
    if config.head_dim == 3:
        os.write(2, b"CUDA error: an illegal memory access was encountered\n")
        os._exit(134)
    if config.head_dim == 4:
        os.kill(os.getpid(), signal.SIGSEGV)
    if config.head_dim == 5:
        time.sleep(600)
    if config.head_dim == 6:
        raise RuntimeError("PTXASError: Internal Triton PTX codegen error\n`ptxas` stderr: ...")
    return ""


@pytest.mark.slow
def test_a_kernel_that_fails_crashes_or_hangs_does_not_end_the_others():
    configs = [InhibitorConfig(False, size, 8) for size in range(1, 8)]
    checks = [check for _, check in check_kernels(configs, CPU, fake_check, time_limit=10)]
    assert [(check.status, check.detail.removesuffix("; auto uses PyTorch operators")) for check in checks] == [
        ("ok", "agrees with float64; auto uses Triton"),
        ("warning", "the output differs from float64 by 0.01 (allowed: 0.001)"),
        ("warning", "its process ended with status 134: CUDA error: an illegal memory access was encountered"),
        ("warning", "its process was ended by SIGSEGV"),
        ("warning", "no result within 10 seconds"),
        ("warning", "RuntimeError: PTXASError: Internal Triton PTX codegen error"),
        ("ok", "agrees with float64; auto uses Triton"),
    ]
    remembered = VerdictCache(ENVIRONMENT, Path(os.environ["RELUMT_CACHE"])).read()
    outcomes = [remembered.get(str(config)) for config in configs]
    assert outcomes == ["passed", None, "crashed", "crashed", "crashed", "crashed", "passed"]


def test_an_unwritable_cache_costs_no_message_per_kernel(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path / "file"))
    ((_, check),) = check_kernels([INHIBITOR], CPU, fake_check)
    assert check.status == "ok" and not caplog.records


def poisons_the_gpu(config, device):
    return "AcceleratorError: an illegal memory access was encountered"


def test_after_an_illegal_access_a_new_process_goes_on(monkeypatch):
    def synchronize(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(kernel_checks.UnusableGpuError, match="AcceleratorError: an illegal"):
        kernel_checks._check_kernel(poisons_the_gpu, torch.device("cuda:0"), INHIBITOR)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert "illegal" in kernel_checks._check_kernel(poisons_the_gpu, torch.device("cuda:0"), INHIBITOR)


def check_with_an_error_of_a_hundredth(config, device):
    """Check a kernel whose output is multiplied with 1.01."""
    from relumt.attention.kernels import inhibitor_triton

    attend = inhibitor_triton.attend
    inhibitor_triton.attend = lambda *arguments: attend(*arguments) * 1.01
    try:
        return check_config(config, device)
    finally:
        inhibitor_triton.attend = attend


@pytest.mark.slow
def test_real_kernels_pass_and_wrong_ones_do_not(interpreter):
    ((_, check),) = check_kernels([INHIBITOR], CPU)
    assert check.status == "ok"
    ((_, check),) = check_kernels([INHIBITOR], CPU, check_with_an_error_of_a_hundredth)
    assert check.status == "warning" and check.detail.startswith("the output differs from float64 by 0.01")


def test_kernels_are_timed_beside_the_backends_that_accept_the_call(interpreter):
    configs = [SHORT_RELU, InhibitorConfig(half=True, head_dim=8, value_dim=16, has_key_mask=True, has_dropout=True)]
    times = dict(time_kernels(configs, CPU))
    for config, measured in times.items():
        assert not isinstance(measured, Failure), measured.reason
        assert {KERNEL, "math"} <= measured.keys() and "cuDNN" not in measured, config
        assert all(seconds > 0 for both in measured.values() for seconds in both)
    lines = format_times(times, CPU).splitlines()
    assert lines[0].split() == ["kernel", "B×H×T", "Triton", "flash", "cuDNN", "efficient", "math"]
    assert [line.partition("  ")[0] for line in lines[2:]] == [str(config) for config in configs]


def test_the_shapes_that_are_timed_compile_the_kernels_that_are_named():
    for config in all_configs():
        length = kernel_speeds.call_shape(config, torch.device("cuda:0")).length
        if isinstance(config, PointwiseConfig):
            q = torch.empty(1, 1, length, config.head_dim, dtype=config.dtype)
            is_plain = config.activation == "relu" and not config.has_row_stats
            assert {call_kind(q, float(config.has_dropout), is_plain)} == {config.query_kind, config.key_kind}, config


def test_the_report_names_what_auto_uses(interpreter, monkeypatch, capsys):
    monkeypatch.setattr(self_check, "all_configs", lambda: [INHIBITOR, InhibitorConfig(False, 2, 2)])
    monkeypatch.setattr(kernel_checks, "check_kernels", functools.partial(check_kernels, check=fake_check))
    report.report_kernels(CPU)
    printed = capsys.readouterr().out
    assert (
        "ok       Inhibitor in float32, head size 8, value size 8: agrees with float64; auto uses Triton\n" in printed
    )
    assert "warning  Inhibitor in float32, head size 2, value size 2: the output differs" in printed
    assert "auto uses Triton for 1 of 2 kinds of calls on cpu" in printed
    assert "attach this report to an issue" in printed


def test_without_triton_on_the_device_nothing_is_checked(monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    report.report_kernels(CPU)
    assert capsys.readouterr().out == (
        "warning  kernels on cpu: not checked: there is no GPU, and TRITON_INTERPRET is not 1; "
        "auto uses PyTorch operators\n"
    )
