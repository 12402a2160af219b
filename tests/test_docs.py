"""The documentation: generated pages, figures and quotations are up to date, links lead somewhere, the example runs."""

import importlib.util
import random
import re
from pathlib import Path

import pytest

from relumt.attention import MECHANISMS
from relumt.printed_results import papers, printed_values

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load(name):
    """Import a script of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = load("mechanisms")
checker = load("check_figures")


def anchors(page):
    """Return what links to the headings of a Markdown page end in, by GitHub's rules."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_is_what_make_docs_writes():
    results = generator.RESULTS.read_text(encoding="utf-8")
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(results), "run make docs"


def test_the_page_has_every_mechanism_and_the_papers_values():
    page = generator.page("")
    assert re.findall(r"^### `(.*)`$", page, flags=re.MULTILINE) == list(MECHANISMS)
    assert "- [RL] Table 1, relu alone: did not converge" in page
    assert "- [RF] Table 4, reluformer: IWSLT14 De-En BLEU 34.56," in page


def test_our_results_reach_the_page():
    results = "# Results\n\nAs follows.\n\n| model | BLEU tok |\n|---|---|\n| relu | 12.34 |\n\n## Next\n"
    assert "### `relu`" in generator.page(results)
    assert generator.page(results).count("(results/attention_on_multi30k.md): BLEU tok 12.34\n") == 1


def test_the_papers_have_the_results_that_mechanisms_name():
    for spec in MECHANISMS.values():
        for where in spec.paper_results:
            assert printed_values(*where)


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", generator.INTRODUCTION, flags=re.DOTALL)
    names = {}
    exec(example, names)
    assert names["output"].shape == (10, 2, 512)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_figures_are_drawn_from_the_tables(tmp_path):
    pytest.importorskip("matplotlib")
    load("figures").main(tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "figures").glob("*.svg")}
    assert drawn == kept, "run python docs/figures.py"


@pytest.mark.parametrize(("paper", "name"), [("RF", "reluformer"), ("RL", "rela"), ("IN", "inhibitor")])
def test_every_table_and_figure_of_a_paper_has_a_claim(paper, name):
    claims = re.findall(r"^\| (Table|Figure) (\d+):", (DOCS / f"{name}.md").read_text("utf-8"), flags=re.MULTILINE)
    entries = papers()[paper] | papers()[paper].get("figures", {})
    printed = {entry for entry in entries if re.fullmatch(r"(table|figure)\d+", entry)}
    assert {f"{kind.lower()}{number}" for kind, number in claims} == printed


@pytest.mark.parametrize("name", ["reluformer", "rela", "inhibitor", "activations"])
def test_every_claim_says_whether_it_is_reproduced(name):
    lines = checker.blank(checker.CODE, (DOCS / f"{name}.md").read_text("utf-8")).splitlines()
    claims = [checker.cells(line) for line in lines if line.startswith("| ") and not line.startswith("| claim |")]
    verdict = re.compile(r"(yes|no|in part|not( yet)? run|not covered|the (order|numbers))\b")
    unclear = [claim for claim, _, ours, reproduced, _ in claims if not verdict.match(reproduced or ours)]
    assert claims and not unclear, unclear[0]


def test_differences_over_seeds_follow_from_the_scores_by_seed(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    statistics = load("study_statistics")
    multi30k, iwslt14 = ((DOCS / "results" / f"{page}.md").read_text(encoding="utf-8") for page in statistics.PAGES)
    for row in statistics.rows("relu_or_softmax"):
        assert f"\n| {' | '.join(row)} |\n" in multi30k, "run python docs/study_statistics.py"
    for _, loss, validation, test, p_validation, p_test, _ in statistics.rows("relu_or_softmax_iwslt14"):
        _, _, after = iwslt14.partition(f"mean difference | {loss} | {validation} | {test} |")
        assert after.splitlines()[1].endswith(f", p of Dunnett's test | | {p_validation} | {p_test} | |")


def quoted_figures():
    """Return every figure that a page quotes, as (page, text of the page, match)."""
    for name in checker.QUOTING:
        text = (ROOT / name).read_text(encoding="utf-8")
        readable = checker.blank(checker.LINK, checker.blank(checker.CODE, text))
        yield from (
            (name, text, match) for match in checker.NUMBER.finditer(readable) if checker.figures(match.group())
        )


def test_every_quoted_figure_is_in_the_results():
    problems = [line for name in checker.QUOTING for line in checker.unfounded(name, (ROOT / name).read_text("utf-8"))]
    assert not problems, problems[0]


def test_a_wrong_digit_in_a_quoted_figure_is_found():
    """At least nine wrong digits in ten are; the others make a figure that the linked section has, too."""
    chance = random.Random(1)
    found = []
    for name, text, figure in chance.sample(list(quoted_figures()), 200):
        place = chance.choice([place for place in range(*figure.span()) if text[place].isdigit()])
        wrong = chance.choice([digit for digit in "0123456789" if digit != text[place]])
        found.append(any(checker.unfounded(name, text[:place] + wrong + text[place + 1 :])))
    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize(
    ("quotation", "problem"),
    [
        (
            "a ratio of 0.398\n\n[FFN](results/ffn_slots.md#training-speed)",
            "0.398 is not in ffn_slots.md#training-speed",
        ),
        ("89% of the weights", "89% is not in docs/results/, because no page there is linked"),
        ("| claim | paper | ours |\n|---|---|---|\n| Table 5: worse | 33.91 | |", "33.91 is not in papers.json"),
        (
            "| | loss |\n|---|---|\n| softmax | [4.031](results/relu_or_softmax.md#means-over-seeds) |",
            "4.031 is not in relu_or_softmax.md#means-over-seeds",
        ),
        (
            "40.75 ±\n0.53 in [means](results/relu_or_softmax.md#means-over-seeds)",
            "40.75 ± 0.53 is not in relu_or_softmax.md#means-over-seeds",
        ),
        (
            "(−1.60 to 0.44) in [means](results/relu_or_softmax_iwslt14.md#means-and-differences)",
            "−1.60 to 0.44 is not in relu_or_softmax_iwslt14.md#means-and-differences",
        ),
    ],
)
def test_an_unfounded_figure_is_named(quotation, problem):
    page = f"# [RF] A title\n\n{quotation}\n"
    line = page[: page.index(problem.split()[0])].count("\n") + 1
    assert list(checker.unfounded("docs/page.md", page)) == [f"docs/page.md:{line}: {problem}"]


@pytest.mark.parametrize(
    "text",
    ["arXiv:2302.06461 §5.2", "version 2.6.0 of 1.5-entmax", "`--dropout 0.1`", "```\n0.1 BLEU\n```", "    lr 7.5\n"],
)
def test_names_and_code_are_not_figures(text):
    assert not list(checker.unfounded("docs/page.md", text))


@pytest.mark.parametrize("page", sorted((DOCS / "results").glob("*.md")), ids=lambda page: page.name)
def test_every_page_of_results_names_a_command_and_a_revision(page):
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^ {4}\S", text, flags=re.MULTILINE), "no command"
    assert re.search(r"\b(commits?|[Rr]evisions?)\s[0-9a-f]{7}\b", text), "no revision"
