"""Tables from files that are damaged, contradict each other, or have another shape."""

import json
from pathlib import Path

import pytest

from relumt.analysis.record import AnalysisFile, read_analysis, write_analysis
from relumt.papers import get_table
from relumt.papers.context import TableContext
from tests.papers.cases import SIGNATURE, analysis, make_record, write_run, write_translations
from tests.runs.cases import with_value

pytestmark = pytest.mark.attack("records")

DIGITS = "9" * 5000
ODD_TEXTS = [
    "",
    "{",
    "null",
    "[]",
    "1",
    '"a"',
    "{}",
    "\x00",
    "[" * 100_000,
    '{"a":' * 100_000,
    DIGITS,
    "NaN",
    "\ufeff{}",
]
ODD_VALUES = [None, True, "1", -1, 1.5, [], {}, [None], {"a": None}, 10**30]


def paths_in(value, path=()):
    """Yield the path of every value in a JSON document, as a tuple of keys and indices."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths_in(item, (*path, key))


def replaced(document, path, value):
    """Return JSON with the value at `path` replaced; a text in place of a value is JSON itself."""
    if not path:
        return json.dumps(value)
    changed = json.loads(json.dumps(document))
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return json.dumps(changed)


@pytest.fixture
def analysis_json(attack) -> Path:
    path = attack.folder / "analysis.json"
    write_analysis(AnalysisFile("test", [analysis()]), path)
    return path


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_an_analysis_that_is_none(attack, analysis_json, text):
    analysis_json.write_text(text)
    assert "analysis.json: " in attack.reads(read_analysis, analysis_json)


def test_analyses_with_other_values(attack, analysis_json):
    document = json.loads(analysis_json.read_text())
    document["checkpoints"][0]["attention"] = {"encoder.0": document["checkpoints"][0]["attention"]["encoder.0"]}
    for path in paths_in(document):
        for value in ODD_VALUES:
            analysis_json.write_text(replaced(document, path, value))
            attack.reads(read_analysis, analysis_json)


@pytest.mark.parametrize("content", [b"\xff", b'{"schema": 3, "subset": "\xff"}', b"\x1f\x8b"])
def test_an_analysis_that_is_no_text(attack, analysis_json, content):
    analysis_json.write_bytes(content)
    assert attack.reads(read_analysis, analysis_json)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("null_rate", [0.1]),
        ("entropy", []),
        ("top_share", {"1": [0.1, 0.2], "2": [0.1]}),
        ("top_share", {"3": [0.1, 0.2]}),
        ("top_share", {"nan": [0.1, 0.2]}),
        ("top_share", {"1e400": [0.1, 0.2]}),
        ("site", "other"),
        ("site", "encoder\n"),
        ("num_queries", 10**30),
    ],
)
def test_measures_that_contradict_each_other(attack, analysis_json, field, value):
    document = json.loads(analysis_json.read_text())
    document["checkpoints"][0]["attention"]["encoder.1"][field] = value
    analysis_json.write_text(json.dumps(document))
    assert "delete it and run relumt analyze again" in attack.reads(read_analysis, analysis_json)


# Tables of runs

FIGURES = ["reluformer_table3", "reluformer_figure4", "rela_figure3", "rela_figure6", "rela_figure7", "rela_table6"]


def finish_runs(name, **changes):
    for experiment in get_table(name).experiments("small"):
        write_run(experiment, Path("runs"), analysis=analysis(**changes))


def print_table(attack, name, *options):
    return attack.relumt("table", name, "--preset", "small", "--out", "plots", *options, allow_changes=True)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    "change", [{"attention": {}}, {"attention": {"encoder.0": analysis().attention["encoder.0"]}}], ids=["none", "one"]
)
def test_analyses_without_some_layers(attack, name, change):
    finish_runs(name, **change)
    assert print_table(attack, name).status in (0, 2)


def test_seeds_with_other_numbers_of_layers(attack):
    for experiment in get_table("rela_figure3").experiments("small"):
        write_run(experiment, Path("runs"), make_record(experiment, 1), analysis())
        one_layer = {"encoder.0": analysis().attention["encoder.0"]}
        write_run(experiment, Path("runs"), make_record(experiment, 2), analysis(attention=one_layer))
    assert "different numbers of layers" in print_table(attack, "rela_figure3").error


@pytest.mark.parametrize("name", ["reluformer_table3", "rela_figure7"])
@pytest.mark.parametrize("text", ODD_TEXTS[:8])
def test_runs_with_a_damaged_analysis(attack, name, text):
    finish_runs(name)
    for path in Path("runs").glob("*/*/*/analysis.json"):
        path.write_text(text)
    assert print_table(attack, name).status == 2


@pytest.mark.parametrize("options", [[], ["reluformer_table4", "--preset", "small"]])
@pytest.mark.parametrize("text", ODD_TEXTS[:8])
def test_runs_with_a_damaged_record(attack, options, text):
    for experiment in get_table("reluformer_table4").experiments("small"):
        (write_run(experiment, Path("runs")) / "run.json").write_text(text)
    assert attack.relumt("table", *options).status == 2


def overwrite_files(folder: Path, hypotheses: str | None, references: str | None) -> None:
    for name, text in (("test.hyp.tok", hypotheses), ("test.ref.tok", references)):
        if text is not None:
            (folder / name).write_bytes(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("hypotheses", "references", "signature"),
    [
        ("a\n", None, SIGNATURE),
        ("", "", SIGNATURE),
        (None, "a\n" * 6, SIGNATURE),
        ("\xff\n" * 6, None, SIGNATURE),
        (None, None, ""),
        (None, None, "tok:none"),
        (None, None, "a|b:c:d"),
        (None, None, SIGNATURE.replace("none", "flores200")),
        (None, None, SIGNATURE.replace("none", "\n")),
    ],
)
def test_scored_files_that_do_not_fit(attack, hypotheses, references, signature):
    for experiment in get_table("reluformer_table4").experiments("small"):
        record = make_record(experiment)
        record = with_value(record, "evaluations.test.scores.bleu_tokenized.signature", signature)
        folder = write_run(experiment, Path("runs"), record)
        write_translations(folder, record, {0} if experiment.model == "softmax" else {1})
        if experiment.model == "softmax":
            overwrite_files(folder, hypotheses, references)
    assert attack.relumt("table", "reluformer_table4", "--preset", "small").status in (0, 2)


# What benchmarks wrote

RELATIVE = {"softmax": {"median": 1.0, "low": 1.0, "high": 1.0}}
MEASURED = {"what": "40 steps", "baseline": "softmax", "device": "cpu", "relative": RELATIVE}
HEAD = {key: MEASURED[key] for key in ("what", "baseline", "device")}
SPEEDS = {
    "rela_table2": {"training": MEASURED, "decoding": MEASURED},
    "reluformer_table4": {"training": MEASURED, "decoding": MEASURED},
    "rela_figure2": HEAD | {"groups": [{"shortest": 3, "longest": 8, "relative": RELATIVE}]},
    "reluformer_table1": HEAD | {"throughput": RELATIVE},
}


@pytest.fixture(params=SPEEDS)
def speeds(request, attack):
    """A table with speeds: its name, the path of the file and a function that renders it."""
    name = request.param
    for experiment in get_table(name).experiments("small"):
        write_run(experiment, Path("runs"), analysis=None)
    context = TableContext(name, Path("runs"), "small", Path("plots"))
    render = get_table(name).render
    if name == "reluformer_table1":  # it needs analyzed runs
        from relumt.papers.ffn_table import training_speed_tables as render
    return name, Path(f"runs/{name}-multi30k_de_en_small.json"), lambda: render(context)


def test_speeds_of_another_shape(attack, speeds):
    name, path, render = speeds
    path.write_text(json.dumps(SPEEDS[name]))
    assert attack.reads(render) == ""
    for text in ODD_TEXTS:
        path.write_text(text)
        assert str(path) in attack.reads(render)
    paths = list(paths_in(SPEEDS[name]))
    for where in paths[: 3 if name == "rela_figure2" else None]:  # which draws a plot if the values are valid
        for value in ODD_VALUES:
            path.write_text(replaced(SPEEDS[name], where, value))
            attack.reads(render)


@pytest.mark.parametrize("value", [0, -1, True, "1", None, 1e308, [], {"median": 1}])
@pytest.mark.parametrize("key", ["median", "low", "high"])
def test_speeds_with_other_numbers(attack, key, value):
    changed = {"softmax": RELATIVE["softmax"] | {key: value}}
    path = Path("runs/rela_figure2-multi30k_de_en_small.json")
    path.parent.mkdir()
    path.write_text(json.dumps(HEAD | {"groups": [{"shortest": 3, "longest": 8, "relative": changed}]}))
    assert attack.relumt("table", "rela_figure2", "--preset", "small", allow_changes=True).status in (0, 2)
