"""The measurement with a worker that computes without Concrete, or fails as an environment or a machine can."""

import json
import sys

import pytest

from relumt.encrypted_attention.__main__ import main
from relumt.errors import UserError
from tests.tables.cases import render

WORKER = """#!{python}
import sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
import concrete_worker as worker
class Circuit:
    programmable_bootstrap_count, global_p_error, complexity = 16, 1e-6, 1e9
    size_of_bootstrap_keys = size_of_keyswitch_keys = 10**6
    graph = type("Graph", (), {{"maximum_integer_bit_width": lambda self: 5}})()
    def __init__(self, attention, n):
        self.attention = attention
    def keygen(self):
        sum(range(10**5))
    def encrypt(self, *inputs):
        return inputs
    def run(self, *inputs):
        sum(range(10**5))
        return worker.CIRCUITS[self.attention](*inputs, worker.PLAIN)
    def decrypt(self, output):
        return output
worker.compile_circuit = lambda attention, n: sum(range(10**5)) and Circuit(attention, n)
worker.versions = lambda: {{"python": "3", "concrete-python": "2", "numpy": "1"}}
{change}
worker.main()
"""


@pytest.fixture
def measure(tmp_path, capsys):
    """Return a function that measures with a changed worker, and returns its status and what it printed."""

    def run(change, *options):
        python = tmp_path / "python"
        python.write_text(WORKER.format(python=sys.executable, change=change))
        python.chmod(0o755)
        status = 0
        try:
            main(["--preset", "smoke", "--out", str(tmp_path / "inhibitor_table3-smoke"), *options])
        except SystemExit as ended:
            status = ended.code
        return status, capsys.readouterr().err

    return run


def options(tmp_path):
    return ["--python", str(tmp_path / "python")]


def test_what_was_measured_becomes_a_table_and_is_not_measured_again(measure, tmp_path):
    status, printed = measure("", *options(tmp_path), "--repetitions", "3")
    assert status == 0 and printed.count("exact") == 2 * 4
    result = json.loads((tmp_path / "inhibitor_table3-smoke" / "n2.json").read_text())
    assert len(result["inhibitor"]["cpu_seconds"]) == 3  # without the warm-up
    times, circuits = render("inhibitor_table3", tmp_path, "smoke")
    row = times.rows[0]
    assert row[:4] == ["2", "2.68", "0.749", "3.6"] and all(row[4:])
    assert times.rows[1] == ["4", "22.4", "8.56", "2.6", "", "", "", ""]
    assert any("concrete-python 2" in note and "revision" in note for note in times.notes)
    assert circuits.rows[0][:3] == ["2, dot product", "16", "5"]
    folder = tmp_path / "inhibitor_table3-smoke"
    (folder / "n4.json").write_bytes((folder / "n2.json").read_bytes())
    with pytest.raises(UserError, match=r"n4.json: expected times of length 4, found those of length 2; delete it"):
        render("inhibitor_table3", tmp_path, "smoke")
    status, printed = measure("", "--python", "missing", "--repetitions", "3")
    assert status == 0 and "n2.json: already measured" in printed
    status, printed = measure("", "--python", "missing", "--repetitions", "2")
    assert status == 2 and "--python missing: cannot be executed (No such file or directory)" in printed


FAILURES = {
    "worker.versions = lambda: __import__('no_concrete')": (
        2,
        "cannot import Concrete (ModuleNotFoundError",
    ),
    "import no_numpy": (
        2,
        "ended with status 1 (ModuleNotFoundError: No module named 'no_numpy')",
    ),
    "print('Usage: python'); sys.exit()": (2, "sent an invalid message"),
    "worker.draw_inputs = lambda *_: 1 / 0": (1, "ended with status 1 (ZeroDivisionError: division by zero)"),
    "worker.draw_inputs = lambda *_: __import__('os').kill(__import__('os').getpid(), 9)": (1, "ended by signal 9"),
    "worker.draw_inputs = lambda *_: sys.exit()": (1, "ended before its last run"),
    "Circuit.decrypt = lambda self, output: output + 1": (1, "dot product: expected [["),
}


@pytest.mark.parametrize("change", FAILURES)
def test_a_failure_is_one_line_and_leaves_no_file(measure, tmp_path, change):
    expected, message = FAILURES[change]
    status, printed = measure(change, *options(tmp_path))
    errors = [line for line in printed.splitlines() if "error" in line]
    assert status == expected and len(errors) == 1 and message in errors[0]
    assert not (tmp_path / "inhibitor_table3-smoke").exists()


def test_a_worker_that_hangs_is_killed(measure, tmp_path):
    status, printed = measure("__import__('time').sleep(600)", *options(tmp_path), "--time-limit", "1")
    assert status == 1 and "took longer than 1 seconds" in printed


def test_a_damaged_file_is_refused(measure, tmp_path):
    (tmp_path / "inhibitor_table3-smoke").mkdir()
    (tmp_path / "inhibitor_table3-smoke" / "n2.json").write_text("{")
    status, printed = measure("", *options(tmp_path))
    assert status == 2 and "n2.json: not in the expected format" in printed
