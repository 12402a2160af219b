"""The documentation: generated pages and figures are up to date, links lead somewhere, the example runs."""

import importlib.util
import re
from pathlib import Path

import pytest

from relumt.attention import MECHANISMS
from relumt.papers import printed_values

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load(name):
    """Import a script of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = load("mechanisms")


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
