"""Notes below tables of scores, from made-up runs: what the preset lacks, revisions and differences."""

import pytest

from relumt.installation import Revision
from relumt.papers import TABLES, get_table
from relumt.papers.notes import ENVIRONMENTS_NOTE
from relumt.runs.environment import Kernels
from relumt.runs.record import AcceptedChange
from tests.papers.cases import analysis, find_experiments, make_record, render, write_run
from tests.runs.cases import with_value


def test_a_preset_names_the_papers_corpora_that_it_lacks(tmp_path):
    """[RL] Table 3 has four language pairs; preset small has one corpus, beside which none of the four is shown."""
    write_run(get_table("rela_table3").experiments("small")[0], tmp_path)
    (table,) = render("rela_table3", tmp_path)
    assert table.header == ["", "BLEU detok, multi30k_de_en_small", "p against softmax"]
    corpora = "wmt14_en_fr, wmt18_en_fi, wmt18_zh_en, wmt16_ro_en"
    assert f"multi30k_de_en_small instead of the paper's {corpora} (1 instead of 4 corpora)" in table.notes


SPEEDS = {"rela_table2", "rela_figure2"}
"""Tables of speeds, whose revision test_speeds.py tests."""


@pytest.mark.parametrize(
    "name", sorted(name for name in TABLES.keys() - SPEEDS if get_table(name).experiments("small"))
)
def test_a_table_of_complete_runs_has_no_empty_cells_and_names_their_revision(tmp_path, capsys, name):
    for experiment in get_table(name).experiments("small"):
        write_run(experiment, tmp_path, analysis=analysis())
    (table, *_) = render(name, tmp_path)
    assert any("trained with revision c" in note for note in table.notes)
    assert all(len(cells) == len(table.header) and any(map(str, cells[1:])) for cells in table.rows)
    assert "no finished run" not in capsys.readouterr().err


def test_the_revision_of_an_analysis_is_named_if_another_one_trained(tmp_path):
    (experiment, *_) = get_table("reluformer_table3").experiments("small")
    for versions, note in (
        ({"revision": "revision c"}, None),
        ({"revision": "revision d"}, "multi30k_de_en_small: analyzed with revision d"),
    ):
        write_run(experiment, tmp_path, analysis=analysis(versions=versions))
        (table,) = render("reluformer_table3", tmp_path)
        assert [line for line in table.notes if "analyzed with" in line] == ([note] if note else [])


ENVIRONMENT, SCORING = "provenance.environment", "evaluations.test.setup.environment"
OTHER = Revision("1234567890", "c")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {f"{ENVIRONMENT}.versions": {"torch": "3"}, f"{ENVIRONMENT}.kernels": Kernels("auto", "3.7.1")},
            "the runs differ in versions of packages and the kernels of attention (see run.json)",
        ),
        (
            {f"{ENVIRONMENT}.revision.code": "d", f"{ENVIRONMENT}.device.fp32_backend": "onednn"},
            "the runs differ in the code of relumt and the backend of fp32 products (see run.json)",
        ),
        (
            {f"{SCORING}.versions": {"sacremoses": "0.0.53"}, f"{SCORING}.device.name": "other"},
            "the runs differ in versions of packages that scored them and the kind of device that translated "
            "(see run.json)",
        ),
        (
            {f"{ENVIRONMENT}.revision": OTHER, f"{SCORING}.revision": Revision("abc", "c", "dirty")},
            "multi30k_de_en_small: trained with revision c, revision 1234567; "
            "translated with revision c, revision abc with uncommitted changes",
        ),
        (
            {f"{ENVIRONMENT}.revision": Revision(), f"{ENVIRONMENT}.versions.relumt": "0.1.0"},
            "multi30k_de_en_small: trained with revision c, relumt 0.1.0",
        ),
        (
            {"accepted_changes": [AcceptedChange("2026-01-01T10:00:00+00:00", ["torch"])]},
            f"{ENVIRONMENTS_NOTE}: multi30k_de_en_small/sparsemax/1",
        ),
    ],
)
def test_differences_of_environments_are_named(tmp_path, changes, expected):
    first, second, *_ = find_experiments("reluformer_table4").values()
    write_run(first, tmp_path)
    record = make_record(second)
    for path, value in changes.items():
        record = with_value(record, path, value)
    write_run(second, tmp_path, record)
    (table,) = render("reluformer_table4", tmp_path)
    assert expected in table.notes
    write_run(second, tmp_path)
    (table,) = render("reluformer_table4", tmp_path)
    assert expected not in table.notes and not any("runs differ" in note for note in table.notes)
