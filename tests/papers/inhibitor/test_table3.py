"""[IN] Table 3 with a worker that computes without Concrete, or fails; and with Concrete."""

import json
import os
import sys

import pytest

from relumt.papers.inhibitor.table3 import PYTHON_VARIABLE, main
from tests.papers.cases import render

WORKER = """#!{python}
import sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
import circuits as worker
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
worker.version, worker.find_spec = (lambda name: "2"), (lambda name: True)
{change}
worker.main(*map(int, sys.argv[2:]))
"""


@pytest.fixture
def measure(tmp_path, run_command, monkeypatch):
    """Return a function that measures with a changed worker, and returns its status and what it printed."""

    def run(change, *options, python=tmp_path / "python"):
        monkeypatch.setenv(PYTHON_VARIABLE, str(python))
        python = tmp_path / "python"
        python.write_text(WORKER.format(python=sys.executable, change=change))
        python.chmod(0o755)
        status, printed = run_command(main, "--preset=smoke", "--out", tmp_path / "inhibitor_table3-smoke", *options)
        return status, printed.err

    return run


def test_what_was_measured_becomes_a_table_and_is_not_measured_again(measure, tmp_path):
    status, printed = measure("", "--repetitions", "3")
    assert status == 0 and printed.count("s of CPU time") == 2 * 4
    result = json.loads((tmp_path / "inhibitor_table3-smoke" / "n2.json").read_text())
    assert len(result["inhibitor"]["cpu_seconds"]) == 3  # without the warm-up
    times, circuits = render("inhibitor_table3", tmp_path, "smoke")
    row = times.rows[0]
    assert row[:4] == ["2", "2.68", "0.749", "3.6"] and all(row[4:])
    assert times.rows[1] == ["4", "22.4", "8.56", "2.6", "", "", "", ""]
    assert any("concrete-python 2" in note and "revision" in note for note in times.notes)
    assert circuits.rows[0][:3] == ["2, dot product", "16", "5"]
    status, printed = measure("", python="missing")
    assert status == 0 and "n2.json: already measured" in printed
    status, printed = measure("", "--lengths", "4", python="missing")
    assert status == 2 and "missing: No such file or directory" in printed
    (tmp_path / "inhibitor_table3-smoke" / "n2.json").write_text("{")
    status, printed = measure("")
    assert status == 2 and "n2.json: not in the expected format" in printed


@pytest.mark.parametrize(
    ("change", "expected", "message"),
    [
        ("worker.find_spec = lambda name: None", 2, "status 2; set RELUMT_CONCRETE_PYTHON to a Python with Concrete"),
        ("print('Usage: python'); sys.exit()", 2, "python: not in the expected format"),
        ("worker.draw_inputs = lambda *_: 1 / 0", 1, "ended with status 1"),
        ("Circuit.decrypt = lambda self, output: output + 1", 1, "dot product: expected [["),
    ],
)
def test_a_failure_is_one_line_and_leaves_no_file(measure, tmp_path, change, expected, message):
    status, printed = measure(change)
    errors = [line for line in printed.splitlines() if "relumt: error" in line]
    assert status == expected and len(errors) == 1 and message in errors[0]
    assert not (tmp_path / "inhibitor_table3-smoke").exists()


@pytest.mark.skipif(not os.environ.get(PYTHON_VARIABLE), reason=f"{PYTHON_VARIABLE} is not set")
def test_two_tokens_are_decrypted_exactly_with_the_expected_number_of_bootstraps(tmp_path):
    """Keys and four runs take half a minute of CPU time."""
    main(["--preset", "smoke", "--out", str(tmp_path / "inhibitor_table3-smoke")])
    times, circuits = render("inhibitor_table3", tmp_path, "smoke")
    assert [row[:2] for row in circuits.rows] == [["2, dot product", "42"], ["2, inhibitor", "16"]]  # 10n² + n, 4n²
    assert float(times.rows[0][-2]) > 1
