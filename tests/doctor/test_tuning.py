"""`relumt doctor --tune` without a GPU: what is refused, and what happens when the search fails."""

from typing import get_args

import pytest
import torch

from relumt.attention.kernels import dispatch, tuning
from relumt.attention.kernels.launch_config import CallKind
from relumt.doctor import tuning as doctor_tuning
from relumt.doctor.isolated_calls import Failure
from relumt.errors import AttemptFailedError, UserError

GPU = torch.device("cuda:0")
KINDS = get_args(CallKind)


@pytest.fixture(autouse=True)
def gpu(monkeypatch, tmp_path):
    """Pretend that there is a GPU; a cache of its own."""
    monkeypatch.setattr(doctor_tuning, "find_gpus", lambda: [GPU])
    monkeypatch.setattr(dispatch, "reason_against_device", lambda device: "")
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path))


def fake_calls(function, tasks, time_limit):
    """Stand for child processes: one kind of calls crashes."""
    for task in tasks:
        yield Failure("its process was ended by SIGSEGV") if task[1] == "wide" else function(task)


def test_a_search_that_crashes_does_not_end_the_others(monkeypatch, capsys):
    def tune(device, kinds, report):
        report("| kernel | kind |")
        report(f"| forward | {kinds[0]} |")

    monkeypatch.setattr(tuning, "tune", tune)
    monkeypatch.setattr("relumt.doctor.isolated_calls.isolated_calls", fake_calls)
    with pytest.raises(AttemptFailedError, match="no block sizes were found for wide calls on cuda:0; those in use"):
        doctor_tuning.tune_gpus()
    printed = capsys.readouterr()
    assert [line for line in printed.out.splitlines() if line] == [
        line for kind in KINDS if kind != "wide" for line in ("| kernel | kind |", f"| forward | {kind} |")
    ]
    assert "relumt: wide calls on cuda:0: its process was ended by SIGSEGV\n" in printed.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_an_error_of_the_search_is_reported_in_one_line(monkeypatch, capsys):
    """A child process searches, and finds no GPU."""
    monkeypatch.setattr(doctor_tuning, "get_args", lambda _: ("short",))  # one process, which takes seconds to start
    with pytest.raises(AttemptFailedError, match="for short calls on cuda:0; those in use"):
        doctor_tuning.tune_gpus()
    _, line = capsys.readouterr().err.splitlines()
    assert line.startswith("relumt: short calls on cuda:0: ")


@pytest.mark.parametrize("reason", ["NVIDIA T4 has compute capability 7.5, and the kernels need 8.0"])
def test_a_gpu_that_does_not_run_the_kernels_is_refused(monkeypatch, reason):
    monkeypatch.setattr(dispatch, "reason_against_device", lambda device: reason)
    with pytest.raises(UserError, match=f"cannot search block sizes on cuda:0: {reason}"):
        doctor_tuning.tune_gpus()


def test_an_unwritable_cache_is_refused_before_the_search(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"could not remember what it finds in .*not writable.*set RELUMT_CACHE"):
        doctor_tuning.tune_gpus()
