"""The names of processors."""

import platform

import pytest

from relumt.runs import environment


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
