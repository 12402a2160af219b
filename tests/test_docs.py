"""docs/mechanisms.md: up to date, and its example runs."""

import importlib.util
import re
from pathlib import Path

from relumt.attention import MECHANISMS
from relumt.papers import printed_values

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("docs_mechanisms", ROOT / "docs" / "mechanisms.py")
generator = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generator)


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
