"""What fails, crashes or hangs in a child process is found there, kernels of attention included; no GPU is needed."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from relumt.attention.kernels import self_check
from relumt.attention.kernels.self_check import check_config
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.doctor import report, try_each

ROOT = Path(__file__).resolve().parents[2]
WRONG = "the output differs from float64 by 0.01 (allowed: 0.001)"


def check(item, device=None):
    """Fail in a way that a number, or the head size of a configuration, selects; else print where."""
    match getattr(item, "head_dim", item):
        case 2:
            return WRONG
        case 3:
            os.write(2, b"first\nCUDA error: an illegal memory access was encountered\n")
            os._exit(134)
        case 4:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 5:
            time.sleep(600)
        case 6:
            raise RuntimeError("PTXASError: Internal Triton PTX codegen error\n`ptxas` stderr: ...")
    print("noise")
    return ""


def child_process(_):
    return str(os.getpid())


@pytest.mark.slow
def test_a_failed_call_does_not_end_the_others(capfd):
    assert list(try_each(check, [*range(8), 1], time_limit=10)) == [
        "", "", WRONG,
        "its process ended with status 134: CUDA error: an illegal memory access was encountered",
        "its process was ended by SIGSEGV", "no result within 10 seconds",
        "RuntimeError: PTXASError: Internal Triton PTX codegen error", "", "",
    ]  # fmt: skip
    assert capfd.readouterr() == ("", "")
    children = list(try_each(child_process, [1, 2], 60))
    assert len({*children, str(os.getpid())}) == 3 and not any(Path("/proc", child).exists() for child in children)
    assert list(try_each(check, [])) == []


PARENT = """
import os, time
from pathlib import Path
from relumt.doctor import try_each
from relumt.process import exit_on_signals
from tests.doctor.test_child_process import say_and_hang

if __name__ == "__main__":
    with exit_on_signals():
        list(try_each(say_and_hang, [os.environ["CHILD"]], 600))
"""


def say_and_hang(path):
    Path(path).write_text(f"{os.getpid()} ")
    time.sleep(600)


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_the_process_ends_with_its_parent(tmp_path, number, status):
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CHILD": str(tmp_path / "child")}
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], env=environment)
    wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith(" "))
    child = Path("/proc", (tmp_path / "child").read_text().strip())
    assert child.exists()
    parent.send_signal(number)
    assert parent.wait(60) == status
    wait_until(lambda: not child.exists())


INHIBITOR = InhibitorConfig(half=False, head_dim=8, value_dim=8)


def check_with_an_error_of_a_hundredth(config, device):
    """Check a kernel whose output is multiplied with 1.01."""
    from relumt.attention.kernels import inhibitor_triton

    attend = inhibitor_triton.attend
    inhibitor_triton.attend = lambda *arguments: attend(*arguments) * 1.01
    return check_config(config, device)


@pytest.mark.slow
def test_real_kernels_pass_and_wrong_ones_do_not(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for function, expected in ((check_config, ""), (check_with_an_error_of_a_hundredth, "the output differs from")):
        (problem,) = try_each(functools.partial(function, device=torch.device("cpu")), [INHIBITOR])
        assert problem.startswith(expected) and bool(problem) == bool(expected)


def test_the_report_names_what_auto_uses(monkeypatch, capsys):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(self_check, "all_configs", lambda: [INHIBITOR, InhibitorConfig(False, 2, 2)])
    monkeypatch.setattr(self_check, "check_config", check)
    report.report_kernels("cpu")
    printed = capsys.readouterr().out
    name = "Inhibitor in float32, head size"
    assert f"ok       {name} 8, value size 8: agrees with float64; auto uses Triton\n" in printed
    assert f"warning  {name} 2, value size 2: {WRONG}; auto uses PyTorch operators\n" in printed
    assert "auto uses Triton for 1 of 2 kinds of calls on cpu" in printed and "to an issue" in printed


def test_without_triton_on_the_device_nothing_is_checked(monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    report.report_kernels("cpu")
    assert capsys.readouterr().out.startswith("warning  kernels on cpu: not checked: ")
