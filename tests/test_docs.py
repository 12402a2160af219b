"""The documentation: pages and figures are what data renders, texts quote cells, links lead somewhere."""

import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from relumt.attention import MECHANISMS
from relumt.printed_results import papers, printed_values

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))  # its scripts are no package

import mechanisms as generator  # noqa: E402
import results  # noqa: E402

EXPERIMENTS = results.load("results")
CLAIMS = results.load("claims")
NUMBER = re.compile(r"(?<![\w.,:§])\d+(?:,\d{3})*(?:\.\d+)?%?(?!\d|[.,]\d|-[a-z])")
NO_FIGURES = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|30% of IWSLT14|95% interval", flags=re.DOTALL)
TABLE = {"columns": {"model": "{}", "BLEU": "{} ± {}", "p": "{}", "note": "{}"}, "rows": {"softmax": []}}
TABLE["rows"]["softmax"] = [[Decimal("-34.20"), Decimal("1.245")], None, "–"]


def figures(text):
    """Return the numbers with a point or a percent sign, but for code, links and quoted cells."""
    readable = NO_FIGURES.sub(" ", results.QUOTATION.sub(" ", text))
    return [number for number in NUMBER.findall(readable) if re.search(r"[.%]", number)]


def anchors(page):
    """Return what links to the headings of a Markdown page end in, by GitHub's rules."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def our_texts():
    """Yield (page, text) for each text that says what we measured."""
    for name, data in EXPERIMENTS.items():
        yield name, data["answer"]
        yield name, data.get("details", "")
    for name, page in CLAIMS.items():
        for section in page["sections"]:
            yield from ((name, text) for text in section.get("text", []) + section.get("notes", []))
            yield from ((name, f"{ours} {verdict}") for _, _, ours, verdict, _ in section.get("claims", []))


def test_pages_are_what_the_data_renders():
    rendered = results.pages()
    stored = {path for path in rendered if path.exists()} | set((DOCS / "results").glob("*.md"))
    assert {path: path.read_text(encoding="utf-8") for path in stored} == rendered, "run make docs"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_question_a_topic_a_command_and_a_revision(name):
    data = EXPERIMENTS[name]
    assert data["question"].endswith("?") and " ".join(results.TOPICS.values()).split().count(name) == 1
    assert data["commands"] or any(table.get("commands") for table in data["tables"].values())
    assert re.match(r"[0-9a-f]{7}\b", data["setting"]["revision"]) and data["setting"]["date"]
    assert "BLEU" not in data["answer"] or "signature" in data or "multi30k:" in data["answer"] + data["details"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_fits_its_column(name):
    for table, section in EXPERIMENTS[name]["tables"].items():
        formats = list(section["columns"].values())[1:]
        for row, cells in section["rows"].items():
            for value, pattern in zip(cells, formats, strict=True):
                size = len(value) if isinstance(value, list) else 1
                assert isinstance(value, str | None) or pattern.count("{}") == size, (table, row)


@pytest.mark.parametrize(
    ("quotation", "text"),
    [
        ("{t|softmax|BLEU}", "−34.20 ± 1.245"),
        ("{other:t|softmax|BLEU|0}", "−34.20"),
        ("{t|softmax|BLEU|1|.2f}", "1.25"),
        ("{t|softmax|p} {t|softmax|note}", " –"),
        ("`runs/{softmax,rela_g}/1`", "`runs/{softmax,rela_g}/1`"),
    ],
)
def test_quoted_cells(quotation, text):
    experiments = {"own": {"tables": {"t": TABLE}}, "other": {"tables": {"t": TABLE}}}
    assert results.fill(quotation, "own", experiments) == text


@pytest.mark.parametrize(
    "quotation",
    [
        "{none:t|softmax|p}",
        "{none|softmax|p}",
        "{t|relu|p}",
        "{t|softmax|TER}",
        "{t|softmax|BLEU|2}",
        "{t|softmax|p|0}",
    ],
)
def test_a_quotation_of_no_cell_is_an_error(quotation):
    with pytest.raises(ValueError, match="quotes no cell"):
        results.fill(quotation, "own", {"own": {"tables": {"t": TABLE}}})


def test_the_first_quotation_of_an_experiment_is_a_link():
    experiments = {"a": {"tables": {"t": TABLE}}, "b": {"tables": {"t": TABLE}}}
    text = results.fill("{a:t|softmax|BLEU|0}, {a:t|softmax|BLEU|1}, {b:t|softmax|note}", "", experiments, "results/")
    assert text == "[−34.20](results/a.md), 1.245, [–](results/b.md)"


def test_texts_quote_figures_instead_of_repeating_them():
    assert figures("34.2 BLEU, 5%, 1,000 of `0.1`, [x](1.2) 1.5-entmax §5.2 {t|a|0.3}") == ["34.2", "5%"]
    assert [(name, found) for name, text in our_texts() if (found := figures(text))] == []


@pytest.mark.parametrize(("paper", "name"), [("RF", "reluformer"), ("RL", "rela"), ("IN", "inhibitor")])
def test_claims_name_every_table_and_quote_what_the_paper_prints(paper, name):
    entries = papers()[paper] | papers()[paper].get("figures", {})
    claims = [claim for section in CLAIMS[name]["sections"] for claim in section["claims"]]
    named = set()
    for claim, theirs, *_ in claims:
        items = {f"{kind.lower()}{number}" for kind, number in re.findall(r"(Table|Figure) (\d+):", claim)}
        named |= items
        source = str([entries[item] for item in items] or entries)
        printed = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", source)}
        assert {float(re.sub("[,%]", "", it)) for it in figures(f"{claim} {theirs}")} <= printed, claim
    assert named == {entry for entry in entries if re.fullmatch(r"(table|figure)\d+", entry)}


@pytest.mark.parametrize("name", [name for name in CLAIMS if name != "relu-or-softmax"])
def test_every_claim_says_whether_it_is_reproduced(name):
    verdict = re.compile(r"(yes|no|in part|not run|not covered|the (order|numbers))\b")
    claims = [claim for section in CLAIMS[name]["sections"] for claim in section["claims"]]
    assert claims and [claim for claim in claims if len(claim) != 5 or not verdict.match(claim[3])] == []


def test_differences_over_seeds_follow_from_the_scores_by_seed():
    pytest.importorskip("matplotlib")
    statistics = pytest.importorskip("study_statistics")
    for scores, name in statistics.TABLES.items():
        means = EXPERIMENTS["relu_or_softmax"]["tables"][name]
        for model, computed in statistics.rows(scores):
            columns = ("difference", "p", "difference, test", "p, test")
            assert computed == [results.cell(means, model, column) for column in columns], model
    assert dict(statistics.gap_rows()) == EXPERIMENTS["gap"]["tables"]["differences"]["rows"], "run study_statistics.py"


def test_figures_are_drawn_from_the_tables(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("figures").main(tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "figures").glob("*.svg")}
    assert drawn == kept, "run make docs"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_figures_in_tables_of_the_readme_are_in_the_results():
    measured = {figure for text in results.pages().values() for figure in figures(text)}
    rows = re.findall(r"^\|.*", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows and set(figures("\n".join(rows))) - measured == set()


def test_the_page_of_mechanisms_is_up_to_date():
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), "run make docs"


def test_the_page_has_every_mechanism_and_the_papers_values():
    page = generator.page()
    assert re.findall(r"^### `(.*)`$", page, flags=re.MULTILINE) == list(MECHANISMS)
    assert "- [RL] Table 1, relu alone: did not converge" in page
    assert "- [RF] Table 4, reluformer: IWSLT14 De-En BLEU 34.56," in page


def test_the_papers_have_the_results_that_mechanisms_name():
    for spec in MECHANISMS.values():
        for where in spec.paper_results:
            assert printed_values(*where)


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", generator.INTRODUCTION, flags=re.DOTALL)
    names = {}
    exec(example, names)
    assert names["output"].shape == (10, 2, 512)
