"""The README and the pages of docs/: their commands and flags exist, their Python runs, and commands run (slow)."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from argparse import ArgumentParser
from dataclasses import fields
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from relumt.cli import COMMANDS
from relumt.plugin.criterions.attention_regularization import AttentionRegularizationConfig
from relumt.plugin.model.mechanism_transformer import MechanismTransformer

ROOT = Path(__file__).parents[1]
GUIDE = "analysis data design fairseq kernels reliability tables training tutorial using"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / f"{name}.md" for name in GUIDE.split())]
OTHERS = (
    "fairseq-train fairseq-generate fairseq-hydra-train torchrun ct2-fairseq-converter pip python3 cp source "
    "sacrebleu".split()
)
"""Programs of others that pages call."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def block_commands(page: Path) -> list[str]:
    """Return the commands of a page's shell blocks, with continued lines joined."""
    return [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines() if line]


def commands(page: Path) -> list[list[str]]:
    """Return the words of each command in a block or in a sentence of a page, without variables that it sets."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    spans = [span for span in spans if re.match(r"(\w+=\S+ )*(relumt|make|scripts/\S+|data_prep/\S+) ", span)]
    parts = [part for line in block_commands(page) + spans for part in re.split(r" && | \| ", line)]
    words = [dropwhile(re.compile(r"\w+=").match, shlex.split(part, comments=True)) for part in parts]
    return [command for command in map(list, words) if command]


def flags(name: str) -> set[str]:
    """Return the flags of a subcommand of relumt."""
    module = importlib.import_module(f"relumt.commands.{COMMANDS[name][0]}")
    parser = ArgumentParser()
    if add_arguments := getattr(module, f"add_{name.replace('-', '_')}_arguments", None):
        add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


SUBCOMMANDS = {"prepare.sh": "prepare", "reproduce.sh": "reproduce", "iwslt14_de_en.sh": "corpus"}
"""Scripts that pass their flags on to a subcommand of relumt."""


@pytest.mark.parametrize(("page", "command"), [(page.stem, words) for page in PAGES for words in commands(page)])
def test_every_command_and_its_flags_exist(page, command):
    program, *arguments = command
    subcommand = arguments.pop(0) if program == "relumt" else SUBCOMMANDS.get(Path(program).name)
    if program == "make":
        targets = [argument for argument in arguments if "=" not in argument]
        assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)
    elif "/" in program and not program.startswith((".venv/", "envs/")):
        assert program == "data_prep/NAME.sh" or os.access(ROOT / program, os.X_OK)
    elif "/" not in program and program != "relumt":
        assert program in OTHERS
    if subcommand:
        given = {word.partition("=")[0] for word in takewhile(lambda word: word != "--", arguments)}
        assert {word for word in given if re.fullmatch("--[a-z-]+", word)} <= flags(subcommand) | {"--help"}


def test_every_flag_of_relumt_in_the_documentation_exists():
    parser = ArgumentParser()
    MechanismTransformer.add_args(parser)
    known = {flag for action in parser._actions for flag in action.option_strings}
    known |= {f"--{field.name.replace('_', '-')}" for field in fields(AttentionRegularizationConfig)}
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    prefixes = "attention|relu|inhibitor|feedforward|memory|gated|log-attention"
    known.add("--attention-only")  # of an earlier revision, which docs/results/inhibitor_int16.md names
    mentioned = set(re.findall(rf"--(?:{prefixes})\b[a-z0-9-]*", "".join(texts)))
    assert "--relu-gamma" in mentioned
    assert mentioned <= known


@pytest.mark.parametrize("number", range(3))
def test_python_without_fairseq_runs(number):
    """The examples of plain PyTorch and of Transformers."""
    examples = blocks(ROOT / "README.md", "python") + blocks(ROOT / "docs" / "using.md", "python")[1:]
    if "transformers" in examples[number]:
        pytest.importorskip("transformers")
    scope = {}
    exec(examples[number], scope)
    if "heads" in scope:
        assert scope["y"].shape == (2, 10, 256) and scope["heads"].shape == (2, 4, 10, 64)


def test_the_example_of_a_table_names_its_runs():
    (example,) = (block for block in blocks(ROOT / "CONTRIBUTING.md", "python") if "ScoreTable" in block)
    scope = {}
    exec(textwrap.dedent(example), scope)
    experiments = scope["sigmoid_table1"].experiments("smoke")  # one for each row and column
    assert [(one.dataset, one.model) for one in experiments] == [("smoke", "softmax"), ("smoke", "sigmoid")] * 2


def test_the_first_cells_of_the_notebook_run(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(ROOT / "docs")
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    scope = {}
    for cell in code[:3]:
        exec(cell, scope)
    assert Path.cwd() == ROOT
    relu = scope["axes"].get_lines()[2].get_ydata()
    assert [weight > 0 for weight in relu] == [score > 0 for score in scope["scores"]]
    assert all(compile(cell, "cell", "exec") for cell in code)


SMALLER = {
    "train": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --max-update 3",
    "generate": "--max-len-a 0 --max-len-b 10",
}
"""Flags that override those of the datasets `default`, which a data-bin has, and `demo`: a run then takes seconds."""


@pytest.fixture
def fresh_clone(tmp_path):
    """Return a clone with a small corpus, and an environment with the dependencies of relumt but without relumt."""
    clone = tmp_path / "relumt"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    venv = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "dependencies.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )
    for script in Path(sysconfig.get_path("scripts")).glob("fairseq-*"):
        text = script.read_text().partition("\n")[2]
        (venv / "bin" / script.name).write_text(f"#!{venv}/bin/python\n{text}")
        (venv / "bin" / script.name).chmod(0o755)
    (venv / ".installed").touch()
    for name in ("default", "demo"):
        settings = clone / "configs" / "datasets" / f"{name}.toml"
        settings.rename(settings.with_name(f"full-{name}.toml"))
        smaller = "".join(f"{kind} = '{flags}'\n" for kind, flags in SMALLER.items())
        settings.write_text(f'base = "full-{name}"\n{smaller}')
    environment = os.environ | {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
    relumt = [str(venv / "bin" / "python"), "-m", "relumt.cli"]
    synth = [*relumt, "synth", "--seed", "1", "--documents", "30", "--test-documents", "3", "--out", "corpus"]
    subprocess.run(synth, cwd=clone, env=environment, check=True)
    (clone / "corpus" / "test.de-en.align").unlink()  # a user's own text has no alignments
    return clone, environment


SHORT = {
    "scripts/reproduce.sh": " --dry-run",  # it would download a corpus and train for hours
    "fairseq-train": " --cpu --max-update 1 --encoder-layers 1 --decoder-layers 1",
    "fairseq-generate": " --cpu --max-len-b 5",
}
"""What makes commands short."""


def run(command: str, clone: Path, environment: dict[str, str]) -> None:
    if command.startswith("relumt ") and not (clone / ".venv/bin/relumt").exists():  # scripts need no installation
        run(".venv/bin/pip install -q .", clone, environment)
    command = command.partition(" #")[0].rstrip() + SHORT.get(command.split()[0], "")
    done = subprocess.run(["bash", "-c", command], cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.slow
def test_the_commands_of_the_readme_run(fresh_clone):
    for command in block_commands(ROOT / "README.md"):
        run(command, *fresh_clone)


@pytest.mark.slow
def test_the_tutorial_and_fairseq_run(fresh_clone):
    clone, environment = fresh_clone
    tutorial, training = (block_commands(ROOT / "docs" / f"{page}.md") for page in ("tutorial", "training"))
    for command in tutorial + [command for command in training if command.startswith("fairseq-")]:
        if not command.startswith(("make", "relumt synth")):  # the clone has an environment and a corpus
            run(command, clone, environment)
    assert (clone / "analysis" / "report.html").exists() and (clone / "attend" / "attend.html").exists()
