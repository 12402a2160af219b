"""python -m relumt.integer_attention, and the table that is made of its file."""

import json
from dataclasses import replace

import msgspec
import pytest

from relumt.errors import UserError
from relumt.integer_attention import __main__ as command
from relumt.integer_attention import measurement
from relumt.integer_attention.compiler import INSTRUCTION_SETS
from relumt.integer_attention.measurement import Sizes, alternate, compare
from relumt.tables import get_table
from relumt.tables.context import TableContext
from relumt.tables.inhibitor_table2 import RESULTS
from relumt.tables.rendering import to_markdown
from tests.integer_attention.cases import RUNNABLE, kernels, needs_compiler


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a function that measures into a folder, with kernels built before and few rounds."""
    calls = []

    def build(compiler):
        return {(RUNNABLE[-1], width): kernels(RUNNABLE[-1], width) for width in (16, 32)}, []

    def measure(*arguments):
        calls.append(arguments)
        return real(*arguments)

    real = measurement.measure
    monkeypatch.setattr(command, "build", build)
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(measurement, "SAMPLE_SECONDS", 1e-5)
    monkeypatch.setitem(command.PRESETS, "smoke", Sizes((32,), (32, 64), rounds=6))

    def run(name="inhibitor_table2-smoke"):
        command.main(["--preset", "smoke", "--out", str(tmp_path / name)])
        return len(calls)

    return run


def context(runs):
    return TableContext("inhibitor_table2", runs, "smoke", runs)


@needs_compiler
def test_what_is_measured_becomes_a_table(measured, tmp_path):
    assert measured() == 1
    beside_paper, sweep = get_table("inhibitor_table2").render(context(tmp_path))
    assert beside_paper.header[1:4] == ["[IN] dot product, µs", "[IN] Inhibitor, µs", "[IN] ratio"]
    assert beside_paper.rows[0][:4] == ["32", "98.6", "63.1", "0.64"]
    assert all(beside_paper.rows[1][4:]) and beside_paper.rows[2][4:] == [""] * 3  # n = 128 was not measured
    assert [row[1:4] for row in sweep.rows[:3]] == [["tiled", widths, "32"] for widths in ("16/32", "16/16", "32/32")]
    assert len(sweep.rows) == 6 and "–" in sweep.rows[0][4]
    printed = to_markdown(beside_paper)
    assert "-O3" in printed and f"-march={INSTRUCTION_SETS[RUNNABLE[-1]].march}" in printed and "revision" in printed


@needs_compiler
def test_a_measurement_is_repeated_only_if_its_origin_changed(measured, tmp_path, monkeypatch):
    assert (measured(), measured()) == (1, 1)
    monkeypatch.setattr(command, "cpu_name", lambda: "another CPU")
    assert measured() == 2
    path = tmp_path / "inhibitor_table2-smoke" / RESULTS
    path.write_text(path.read_text()[:-20])
    with pytest.raises(SystemExit) as ended:
        measured()
    assert ended.value.code == 2


@pytest.mark.parametrize(("content", "reason"), [(None, "no such file; measure"), ("{}", "not in the expected format")])
def test_without_a_valid_file_there_is_no_table(content, reason, tmp_path):
    if content:
        folder = tmp_path / "inhibitor_table2-smoke"
        folder.mkdir()
        (folder / RESULTS).write_text(content)
    with pytest.raises(UserError, match=reason):
        get_table("inhibitor_table2").render(context(tmp_path))


@needs_compiler
def test_without_comparisons_there_is_no_table(measured, tmp_path):
    measured()
    path = tmp_path / "inhibitor_table2-smoke" / RESULTS
    path.write_text(json.dumps(json.loads(path.read_text()) | {"comparisons": []}))
    with pytest.raises(UserError, match="no times; delete it"):
        get_table("inhibitor_table2").render(context(tmp_path))


@pytest.mark.parametrize(
    ("compiler", "status", "reason"), [("no-such-cc", 2, "no C compiler"), ("sh -c 'echo fake $0'", 2, "cannot be lo")]
)
def test_if_nothing_can_be_built_the_request_is_refused(compiler, status, reason, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(SystemExit) as ended:
        command.main(["--out", str(tmp_path / "out")])
    printed = capsys.readouterr()
    assert ended.value.code == status and printed.out == "" and not (tmp_path / "out").exists()
    assert printed.err.startswith("relumt: error: ") and reason in printed.err and printed.err.count("\n") == 1


@needs_compiler
def test_an_instruction_set_that_cannot_be_built_is_left_out(monkeypatch):
    unknown = replace(INSTRUCTION_SETS["AVX-512"], march="x86-64-v9")
    compiler = command.find_compiler()
    monkeypatch.setattr(command, "INSTRUCTION_SETS", {RUNNABLE[-1]: INSTRUCTION_SETS[RUNNABLE[-1]], "new": unknown})
    built, (failure,) = command.build(compiler)
    assert {name for name, _ in built} == {RUNNABLE[-1]}
    assert "-march=x86-64-v9; install" in str(failure)


def test_the_order_alternates_and_the_warm_up_is_left_out(monkeypatch):
    order = []
    monkeypatch.setattr(measurement, "SAMPLE_SECONDS", 0)
    times = alternate({name: lambda repeats, name=name: order.append((name, repeats)) for name in "ab"}, rounds=2)
    assert order == [*(("a", 3), ("b", 3)), *(("b", 1), ("a", 1)), *(("a", 1), ("b", 1)), *(("b", 1), ("a", 1))]
    assert {name: len(measured) for name, measured in times.items()} == {"a": 2, "b": 2}


def test_ratios_are_medians_of_pairs():
    systems = [(attention, width) for attention in ("inhibitor", "dot_product") for width in (16, 32)]
    seconds = {("inhibitor", 16): [1, 2, 4], ("dot_product", 32): [2, 2, 2]}
    times = {
        ("SSE2", code, *system): [x * 1e-6 for x in seconds.get(system, [1, 1, 1]) * 3]
        for code in ("tiled", "plain")
        for system in systems
    }
    first = next(iter(compare(times, d=64, n=32)))
    assert (first.code, first.widths, first.d, first.n) == ("tiled", (16, 32), 64, 32)
    assert (first.inhibitor_us, first.dot_product_us) == pytest.approx((2, 2))
    assert msgspec.to_builtins(first.ratio) == pytest.approx({"median": 1, "low": 0.5, "high": 2})
