"""`relumt doctor` on the command line: what it prints, and its exit status."""

import subprocess
import sys

import pytest
import torch

from relumt.cli import main
from relumt.doctor import report
from relumt.doctor.check import Check


def check_good():
    return Check("good", "ok", "1.0")


def check_slow():
    return Check("slow", "warning", "no compiler", "install gcc")


def check_odd_name():
    return Check("odd", "ok", "/folder\nwith [red]a line break[/red]")


def check_broken():
    raise ImportError("no module named x")


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Run `relumt doctor` with these checks, and return its exit status and what it prints."""

    def run(*checks, arguments=()):
        monkeypatch.setattr(report, "CHECKS", checks)
        status = 0
        try:
            main(["doctor", *arguments])
        except SystemExit as ended:
            status = ended.code
        return status, capsys.readouterr()

    return run


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def test_warnings_leave_the_exit_status_at_0(doctor):
    status, printed = doctor(check_good, check_slow, check_odd_name)
    assert (status, printed.err) == (0, "")
    assert printed.out == (
        "ok       good: 1.0\n"
        "warning  slow: no compiler\n"
        "         install gcc\n"
        "ok       odd: /folder\\nwith [red]a line break[/red]\n"
    )


def test_an_error_is_exit_status_1_after_all_checks(doctor):
    status, printed = doctor(check_broken, check_good)
    assert status == 1
    assert printed.out.splitlines()[0] == "error    broken: ImportError: no module named x"
    assert printed.out.endswith("ok       good: 1.0\n")
    assert printed.err == "relumt: error: training needs what is broken: broken; follow the advice above\n"


def test_colors_are_for_terminals(doctor, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" not in doctor(check_good)[1].out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert doctor(check_good)[1].out == "\x1b[32mok       \x1b[0mgood: 1.0\n"


def test_kernels_are_checked_on_one_gpu_of_each_model(doctor, monkeypatch):
    names = ["A100", "T4", "A100"]
    checked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    monkeypatch.setattr(report, "report_kernels", checked.append)
    assert doctor(check_good)[0] == 0
    assert checked == [torch.device("cuda:0"), torch.device("cuda:1")]


def test_a_broken_torch_ends_in_a_report(doctor, monkeypatch):
    def device_count():
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(torch.cuda, "device_count", device_count)
    assert doctor(check_broken)[0] == 1


def test_tuning_needs_a_gpu(doctor):
    status, printed = doctor(check_broken, arguments=["--tune"])
    assert (status, printed.out) == (2, "")
    assert printed.err == (
        "relumt: error: --tune needs a GPU, but torch sees none; relumt doctor without --tune says more\n"
    )


def test_a_deleted_current_directory_is_refused(doctor, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    status, printed = doctor(check_good)
    assert (status, printed.out) == (2, "")
    assert printed.err == "relumt: error: the current directory does not exist any more; change to another one\n"


def test_unknown_arguments_are_refused(doctor):
    assert doctor(arguments=["--fast"])[0] == 2
    assert doctor(arguments=["now"])[0] == 2


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_ends_it():
    command = [sys.executable, "-P", "-m", "relumt.cli", "doctor"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("ok       relumt: ")
    process.stdout.close()
    assert (process.wait(120), process.stderr.read()) == (141, "")
