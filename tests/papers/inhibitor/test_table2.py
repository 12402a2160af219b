"""python -m relumt.papers.inhibitor.table2: what is checked and timed, when it is measured again, and the table."""

import msgspec
import numpy as np
import pytest

from relumt.errors import AttemptFailedError
from relumt.papers.inhibitor import table2
from relumt.papers.inhibitor.integer_attention import ATTENTIONS, MARCH, Problem
from relumt.papers.inhibitor.table2 import RESULTS, alternate, compare, verified_runs
from relumt.papers.rendering import to_markdown
from tests.papers.cases import render
from tests.papers.inhibitor.test_integer_attention import LATEST, kernels, needs_compiler


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a function that measures with kernels built before and few rounds, and returns how often it timed some."""
    calls = []
    real = table2.measure
    monkeypatch.setattr(table2, "measure", lambda *arguments: calls.append(arguments) or real(*arguments))
    monkeypatch.setattr(table2, "available_sets", lambda: [LATEST])
    monkeypatch.setattr(table2, "Kernels", kernels)
    monkeypatch.setattr(table2, "SAMPLE_SECONDS", 1e-5)
    monkeypatch.setitem(table2.PRESETS, "smoke", ((32,), (32, 64), 6))

    def run():
        table2.main(["--preset", "smoke", "--out", str(tmp_path / "inhibitor_table2-smoke")])
        return len(calls)

    return run


@needs_compiler
def test_what_is_measured_becomes_a_table(measured, tmp_path):
    assert (measured(), measured()) == (1, 1)
    beside_paper, sweep = render("inhibitor_table2", tmp_path, "smoke")
    assert beside_paper.header[1:4] == ["[IN] dot product, µs", "[IN] Inhibitor, µs", "[IN] ratio"]
    assert beside_paper.rows[0][:4] == ["32", "98.6", "63.1", "0.64"]
    assert all(beside_paper.rows[1][4:]) and beside_paper.rows[2][4:] == [""] * 3  # n = 128 was not measured
    assert [row[1:4] for row in sweep.rows[:3]] == [["tiled", widths, "32"] for widths in ("16/32", "16/16", "32/32")]
    assert len(sweep.rows) == 6 and "–" in sweep.rows[0][4]
    printed = to_markdown(beside_paper)
    path = tmp_path / "inhibitor_table2-smoke" / RESULTS
    path.write_text(path.read_text()[:-20])
    with pytest.raises(SystemExit, match="2"):
        measured()
    assert "-O3" in printed and f"-march={MARCH[LATEST]}" in printed and "revision" in printed


@pytest.mark.parametrize(
    ("compiler", "message"),
    [("no-such-cc", "no-such-cc: No such file"), ("false", "false --version ended with status 1")],
)
def test_without_a_compiler_nothing_is_written(compiler, message, tmp_path, monkeypatch, run_command):
    monkeypatch.setenv("CC", compiler)
    status, printed = run_command(table2.main, "--out", tmp_path / "out")
    assert status == 2 and f"relumt: error: {message}" in printed.err and not (tmp_path / "out").exists()


@needs_compiler
def test_a_wrong_kernel_is_reported_before_anything_is_timed(monkeypatch):
    exact = Problem.expected
    monkeypatch.setattr(Problem, "expected", lambda *arguments: exact(*arguments) + np.eye(32, dtype=np.int64))
    with pytest.raises(AttemptFailedError, match=f"tiled inhibitor, {LATEST}, sums of 16 bits, n = 32, d = 32"):
        list(verified_runs({(LATEST, 16): kernels(LATEST, 16)}, 32, 32))


def test_the_order_alternates_and_the_warm_up_is_left_out(monkeypatch):
    order = []
    monkeypatch.setattr(table2, "SAMPLE_SECONDS", 0)
    times = alternate({name: lambda repeats, name=name: order.append((name, repeats)) for name in "ab"}, rounds=2)
    assert order == [*(("a", 3), ("b", 3)), *(("b", 1), ("a", 1)), *(("a", 1), ("b", 1)), *(("b", 1), ("a", 1))]
    assert {name: len(measured) for name, measured in times.items()} == {"a": 2, "b": 2}


def test_ratios_are_medians_of_pairs():
    systems = [(attention, width) for attention in ATTENTIONS for width in (16, 32)]
    seconds = {("inhibitor", 16): [1, 2, 4], ("dot_product", 32): [2, 2, 2]}
    times = {
        ("SSE2", code, *system): [x * 1e-6 for x in seconds.get(system, [1, 1, 1]) * 3]
        for code in ("tiled", "plain")
        for system in systems
    }
    first = next(iter(compare(times, d=64, n=32)))
    assert (first.code, first.inhibitor_width, first.dot_product_width, first.d, first.n) == ("tiled", 16, 32, 64, 32)
    assert (first.inhibitor_us, first.dot_product_us) == pytest.approx((2, 2))
    assert msgspec.to_builtins(first.ratio) == pytest.approx({"median": 1, "low": 0.5, "high": 2})
