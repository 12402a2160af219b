from relumt.papers.rendering import FORMATS, RenderedTable

TABLE = RenderedTable(
    "A & B", ("", "p < 0.05", "50%"), [["rela_g", "1.00 ± 0.10", ""], ['said "so"', "-", "a, b"]], ["note 1"]
)


def test_markdown():
    assert FORMATS["markdown"](TABLE).splitlines() == [
        "**A & B**",
        "",
        "|  | p < 0.05 | 50% |",
        "| --- | ---: | ---: |",
        "| rela_g | 1.00 ± 0.10 |  |",
        '| said "so" | - | a, b |',
        "",
        "- note 1",
    ]


def test_a_bar_in_a_name_does_not_end_a_cell_of_markdown():
    assert r"| a\|b | 1 |" in FORMATS["markdown"](RenderedTable("caption", ["model", "BLEU"], [["a|b", 1]]))


def test_latex_is_an_escaped_tabular_with_booktabs():
    text = FORMATS["latex"](TABLE)
    assert text.startswith("% A & B\n\\begin{tabular}{lrr}\n\\toprule") and text.endswith("\\end{tabular}\n% note 1")
    assert "rela\\_g" in text and "50\\%" in text


def test_latex_protects_brackets_at_the_start_of_a_row_and_replaces_greek_letters():
    text = FORMATS["latex"](RenderedTable("caption", ["γ", "λ₁"], [["[RF], IWSLT14", "α/Σα"], ["a [b]", "τ"]]))
    rows = [line.strip() for line in text.splitlines()]
    assert any(row.startswith("{[}RF], IWSLT14") for row in rows) and not any(row.startswith("[") for row in rows)
    assert "$\\gamma$" in text and "$\\lambda_1$" in text and "a [b]" in text and "$\\tau$" in text
    assert "$\\alpha$/$\\Sigma$$\\alpha$" in text


def test_csv_quotes_what_needs_it():
    assert FORMATS["csv"](TABLE).splitlines() == [
        "# A & B",
        ",p < 0.05,50%",
        "rela_g,1.00 ± 0.10,",
        '"said ""so""",-,"a, b"',
        "# note 1",
    ]


def test_csv_has_no_thousands_separators():
    text = FORMATS["csv"](RenderedTable("caption", ["model", "parameters", "seeds"], [["a", "2,001,408", "1, 2"]]))
    assert text.splitlines()[2] == 'a,2001408,"1, 2"'
