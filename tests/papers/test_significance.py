"""p-values per seed: which differences are significant, and which files and lines they cannot be computed from."""

import pytest
from sacrebleu.metrics import BLEU

from relumt.errors import UserError
from relumt.papers.context import MIN_CHANGED, SIGNIFICANCE_TESTS
from relumt.papers.rendering import format_p_value
from relumt.papers.significance import paired_p_value
from tests.papers.cases import SENTENCES, render, row, write_runs


def test_p_values_per_seed_distinguish_a_worse_system_from_an_equal_one(tmp_path):
    wrong = {("softmax", 2): {1}, ("sparsemax", 1): {0, 1, 2, 3, 4}, ("reluformer", 2): {2}}
    bleu = {"softmax": (30.0, 30.0), "sparsemax": (30.0,), "reluformer": (30.0, 30.0)}
    write_runs("reluformer_table4", tmp_path, bleu, wrong=lambda *run: wrong.get(run, set()))
    (table,) = render("reluformer_table4", tmp_path)
    p_values = table.header.index("p against transformer")
    assert row(table, "sparsemax")[p_values] == "<0.001"
    identical, as_good = row(table, "reluformer")[p_values].split(", ")
    assert identical == "seed 1: 1.000" and float(as_good.removeprefix("seed 2: ")) > 0.2
    assert any("two-sided" in note for note in table.notes)
    write_runs("reluformer_table4", tmp_path, {"reluformer": (30.0, 0.1)}, wrong=lambda *_: {2})
    assert row(render("reluformer_table4", tmp_path)[0], "reluformer")[-2:] == ["-", ""]


def test_there_is_no_p_value_if_few_translations_differ(tmp_path):
    """sacreBLEU's tests would call the difference significant."""
    bleu = {"softmax": (30.0,), "sparsemax": (30.0,)}
    path = write_runs("reluformer_table4", tmp_path, bleu, wrong=lambda *_: set())["sparsemax"] / "test.hyp.tok"
    lines = path.read_text().splitlines()
    for changed, expected in ((0, "1.000"), (1, "-"), (MIN_CHANGED - 1, "-"), (MIN_CHANGED, "<0.001")):
        text = "".join(f"{line}\n" for line in ["nothing"] * changed + lines[changed:])
        path.write_text(text)
        (table,) = render("reluformer_table4", tmp_path)
        assert row(table, "sparsemax")[table.header.index("p against transformer")] == expected
    assert any(f"-: only 1 to {MIN_CHANGED - 1} lines differ" in note for note in table.notes)


def test_there_is_no_difference_between_equally_wrong_words():
    """The n-grams of both systems match equally many of the references, so no sample of lines can differ."""
    references = SENTENCES
    one, other = (
        [f"{wrong} {line}" if n % 3 else line for n, line in enumerate(references)] for wrong in ("wrong", "bad")
    )
    for test in SIGNIFICANCE_TESTS:
        assert paired_p_value(one, other, references, BLEU(tokenize="none", force=True), test) == 1
        changed = ["the", *other[1:]]
        assert paired_p_value(one, changed, references, BLEU(tokenize="none", force=True), test) is None


def test_a_p_value_is_never_printed_as_0():
    assert [format_p_value(p) for p in (1.0, 0.0005, 0.0004, 0.0)] == ["1.000", "0.001", "<0.001", "<0.001"]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("test.ref.tok", ["another reference", *SENTENCES[1:]], "different references; evaluate both again"),
        ("test.hyp.tok", SENTENCES[:-1], "has 59 lines, .* has 60; translate again"),
    ],
)
def test_scored_files_that_do_not_fit_are_refused(tmp_path, name, lines, message):
    bleu = {"softmax": (30.0,), "rela_g": (30.0,)}
    folders = write_runs("reluformer_table4", tmp_path, bleu, wrong=lambda model, _: {int(model == "rela_g")})
    (folders["rela_g"] / name).write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match=message):
        render("reluformer_table4", tmp_path)
