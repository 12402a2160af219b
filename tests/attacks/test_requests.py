"""Requests that cannot work end in one line with exit status 2, before anything is written; odd words are only words.

What a row of requests.toml shows for one option is tested for all options of a kind by the tests over the parsers.
"""

import argparse
import importlib
import json
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from relumt import process
from relumt.analysis import plots, report
from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.plots import draw_maps, save_figure
from relumt.analysis.record import AnalysisFile
from relumt.attention.variant_spec import FINITE, flag_name
from relumt.cli import COMMANDS
from relumt.plugin.options import VARIANT_CHOICES
from tests.attacks.attack import error_of, relumt, start
from tests.papers.cases import analysis
from tests.runs.cases import FakeFairseq, replace_fairseq

REQUESTS = tomllib.loads(Path(__file__).with_name("requests.toml").read_text())
FLAGS_OF_TRAINING = REQUESTS.pop("training")
TEXTS = " ".join(f"--{split} corpus/{split}" for split in ("train", "valid", "test"))
OPTIONS = {
    "FILTER": "--checkpoint model.pt --data bin --src corpus/train.de --tgt corpus/train.en --out kept",
    "DOCUMENTS": "--hyp corpus/test.de --ref corpus/test.en --docs documents",
    "PREPARE": f"--src de --tgt en {TEXTS}",
}


@pytest.fixture
def fairseq(monkeypatch) -> FakeFairseq:
    """What stands in for fairseq-train and fairseq-generate; it must not be started."""
    return replace_fairseq(monkeypatch)


@pytest.mark.parametrize(("request_", "message"), [row for kind in REQUESTS.values() for row in kind.items()])
@pytest.mark.usefixtures("work", "constant_environment")
def test_what_cannot_work_is_refused(capfd, fairseq, request_, message):
    for name, options in OPTIONS.items():
        request_ = request_.replace(name, options)
    assert message in error_of(lambda: relumt(request_), capfd) and not fairseq.started


def train_step(flags: str) -> float:
    """Build the model and the criterion that `flags` describe, as fairseq-train does; return the loss of a batch."""
    from tests.plugin.model.build import arguments, sample, task

    translation = task()
    parsed = arguments("--arch", "reluformer", *flags.split())
    model = translation.build_model(parsed)
    loss, *_ = translation.build_criterion(parsed)(model.train(), sample([(5, 4), (2, 3)]))
    loss.backward()
    return loss.item()


@pytest.mark.parametrize("flags", FLAGS_OF_TRAINING)
def test_flags_with_which_nothing_can_be_trained_are_refused(tmp_path, capfd, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert FLAGS_OF_TRAINING[flags] in error_of(lambda: train_step(flags), capfd)


def numeric_options() -> list[tuple[str, str, tuple[float, float]]]:
    """Return what chooses a variant, and the flag and range of each of its options that is a number."""
    return [
        (f"--{choice.name} {owners[0]}", flag_name(attribute), option.metadata.get("range", FINITE))
        for choice in VARIANT_CHOICES
        for attribute, (option, owners) in choice.options().items()
        if option.type is float
    ]


@pytest.mark.parametrize(("variant", "flag", "limits"), numeric_options())
def test_options_of_variants_must_be_in_their_range(tmp_path, capfd, monkeypatch, variant, flag, limits):
    monkeypatch.chdir(tmp_path)
    too_small = ("0", "-0.0", "-1", "1e-30") if limits[0] > 0 else ()
    for value in ("nan", "inf", "-inf", "1e30", "-1e30", *too_small):
        flags = f"--arch mechanism_transformer {variant} {flag}={value}"
        assert f"{flag} must be a number from" in error_of(lambda given=flags: train_step(given), capfd)
    naive = "--inhibitor-implementation naive" if "inhibitor" in flag else ""
    for value in limits:
        assert math.isfinite(train_step(f"--arch mechanism_transformer {variant} {flag}={value} {naive}"))


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Yield every option of every command that checks its value."""
    for command, (room, _) in COMMANDS.items():
        parser = argparse.ArgumentParser()
        module = importlib.import_module(f"relumt.commands.{room}")
        getattr(module, f"add_{command.replace('-', '_')}_arguments", lambda _: None)(parser)
        yield from ((command, action) for action in parser._actions if action.type is not None)


NO_NUMBERS = ("", "x", "nan", "1e400", "-1", "1,5")
REFUSED = {
    process.positive_integer: (*NO_NUMBERS, "0", "1.5"),
    process.whole_number: (*NO_NUMBERS, "1.5"),
    process.finite_number: ("", "x", "nan", "-inf", "1e400"),
    process.share: (*NO_NUMBERS, "1.01"),
}
"""Type of an option → values that it must not have."""


def test_every_option_checks_its_value_before_any_work(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checked = set()
    for command, action in options():
        if action.type in REFUSED and action.option_strings:
            error = error_of(lambda c=command, a=action: relumt(f"{c} {a.option_strings[0]}=x"), capfd)
            assert f"argument {action.option_strings[0]}: expected a" in error
            checked.add(action.type)
    assert checked == REFUSED.keys()
    for parse, values in REFUSED.items():
        for value in values:
            with pytest.raises(argparse.ArgumentTypeError, match="expected a"):
                parse(value)


PATHS = ("missing", "documents/inside", "empty", "binary", "bin")
READERS = """
table --runs PATH
analyze PATH --data bin --out out
analyze model.pt --data PATH --out out
contrast --checkpoint model.pt --data bin --examples PATH
import-contrast PATH --out out
filter FILTER --checkpoint PATH
filter FILTER --src PATH --by cross_entropy
average PATH --out out.pt
export PATH --to fairseq --out out
translate PATH --data bin
score PATH
score-documents DOCUMENTS --hyp PATH
run --train --configs PATH -- small stock
run --train --data-bin PATH -- small stock
grid rela_table3 --root PATH
""".strip().splitlines()


@pytest.mark.parametrize("command", READERS)
@pytest.mark.usefixtures("work", "constant_environment", "fairseq")
def test_a_path_to_something_else_is_refused(capfd, command):
    Path("empty").touch()
    Path("binary").write_bytes(bytes(range(256)) * 9)
    for name, given in OPTIONS.items():
        command = command.replace(name, given)
    for path in PATHS:
        if path != "bin" or "--data" not in command or "--data bin" in command:
            error_of(lambda path=path: relumt(command.replace("PATH", path)), capfd)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("SEED=abc scripts/run.sh data-bin/small stock", "argument --seed: expected a whole number from 0"),
        ("FORCE=yes scripts/run.sh data-bin/small stock", "FORCE is 'yes'; set it to 1 or 0"),
        ("PYTHON=nowhere/python scripts/run.sh", "nowhere/python lacks relumt's requirements"),
        ("scripts/run.sh small", "usage: scripts/run.sh DATASET MODEL [fairseq flags…]; found 'small'; see --help"),
    ],
)
def test_requests_of_the_scripts_that_cannot_work(work, command, message):
    ended = start(command)
    assert ended.returncode == 2 and message in ended.stderr and ended.stderr.count("\n") == 1


WORDS = ["<unk> &amp; $x$ $\\frac", "</script><script>alert(1)</script>", "<!-- a|b `a` {{ 7 }} 100%"]
"""Words of a text, and names, that are code for what shows them: HTML, JSON in HTML, SVG, matplotlib and Markdown."""


class Elements(HTMLParser):
    """Collects elements and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, sorted(attrs)))


def report_on(words: list[str], folder: Path) -> str:
    """Return a report in which all that comes from outside has these names, and draw its maps."""
    maps = {"cross.0": torch.rand(2, len(words), len(words))}
    sentence = SentenceMaps(0, words, words, words, maps, {"cross.0": "cross"})
    checkpoints = [replace(analysis(), name=word, path=word, data=word) for word in words]
    return report.write_plots_and_report(
        AnalysisFile("".join(words), checkpoints), [[sentence]] * len(words), folder
    ).read_text()


def test_words_and_names_are_no_code_in_reports_and_plots(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "PLOT_FORMATS", ("svg",))
    monkeypatch.setattr(report, "get_plotlyjs", lambda: "")
    page = report_on(WORDS, tmp_path)
    sentence = SentenceMaps(0, WORDS, WORDS, WORDS, {"a": torch.rand(1, 3, 3)}, {"a": "cross"})
    save_figure(draw_maps({WORDS[0]: [sentence]})["maps"], tmp_path, "maps")
    drawn = ElementTree.fromstring((tmp_path / "maps.svg").read_bytes())
    assert not [node for node in drawn.iter() if node.tag.rpartition("}")[2] == "script"]
    monkeypatch.setattr(report, "write_plots", lambda *_: None)  # the page with plain names does not depend on plots
    assert Elements(page).found == Elements(report_on([f"name {n}" for n in range(len(WORDS))], tmp_path)).found
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL):
        json.loads(data)
