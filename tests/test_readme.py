"""The README: its links, commands and flags exist, its Python example runs, and its commands run (slow)."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path

import pytest

from relumt.cli import COMMANDS
from relumt.plugin.criterions.attention_regularization import AttentionRegularizationConfig
from relumt.plugin.model.mechanism_transformer import MechanismTransformer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

SMALLER = {
    "train": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --max-update 3",
    "generate": "--max-len-a 0 --max-len-b 10",
}
"""Flags that override those of the dataset `default`, which the path of a data-bin has, so that a run takes seconds."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    """Return all commands of the README, with continued lines joined."""
    return [line for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines() if line]


def test_every_link_leads_to_a_file():
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        assert target.startswith("https://") or (ROOT / target).exists(), target


@pytest.mark.parametrize("command", commands())
def test_every_command_exists(command):
    program, *arguments = shlex.split(command.replace("PIP_CONSTRAINT=constraints.txt ", ""), comments=True)
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif program == "relumt":
        assert arguments[0] in COMMANDS
    elif program == "cp":
        assert (ROOT / arguments[0]).is_file()
    elif "/" in program:
        assert os.access(ROOT / program, os.X_OK)
    else:
        assert program in ("pip", "fairseq-train", "fairseq-generate", "relumt", "source")


def test_every_flag_of_relumt_in_the_documentation_exists():
    parser = ArgumentParser()
    MechanismTransformer.add_args(parser)
    known = {flag for action in parser._actions for flag in action.option_strings}
    known |= {f"--{field.name.replace('_', '-')}" for field in fields(AttentionRegularizationConfig)}
    pages = README + "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    prefixes = "attention|relu|inhibitor|feedforward|memory|gated|log-attention"
    known.add("--attention-only")  # of an earlier revision, which docs/results/inhibitor_int16.md names
    mentioned = set(re.findall(rf"--(?:{prefixes})\b[a-z0-9-]*", pages))
    assert "--relu-gamma" in mentioned
    assert mentioned <= known


def test_the_python_example_runs():
    (block,) = blocks("python")
    scope = {}
    exec(block, scope)
    assert scope["y"].shape == (2, 10, 256) and scope["heads"].shape == (2, 4, 10, 64)


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
    default = clone / "configs" / "datasets" / "default.toml"
    default.rename(default.with_name("full.toml"))
    default.write_text('base = "full"\n' + "".join(f"{kind} = '{flags}'\n" for kind, flags in SMALLER.items()))
    environment = os.environ | {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
    relumt = [str(venv / "bin" / "python"), "-m", "relumt.cli"]
    synth = [*relumt, "synth", "--seed", "1", "--documents", "30", "--test-documents", "3", "--out", "corpus"]
    subprocess.run(synth, cwd=clone, env=environment, check=True)
    (clone / "corpus" / "test.de-en.align").unlink()  # a user's own text has no alignments
    return clone, environment


@pytest.mark.slow
def test_all_commands_run(fresh_clone):
    clone, environment = fresh_clone
    for command in commands():
        command = command.partition(" #")[0].rstrip()
        if command.startswith("scripts/reproduce.sh"):
            command += " --dry-run"  # it would download a corpus and train for hours
        if command.startswith("fairseq-train"):
            command += " --cpu --max-update 1 --encoder-layers 1 --decoder-layers 1"
        if command.startswith("fairseq-generate"):
            command += " --cpu --max-len-b 5"
        if command.startswith("relumt"):
            subprocess.run([str(clone / ".venv/bin/pip"), "install", "-q", "."], cwd=clone, env=environment, check=True)
        result = subprocess.run(
            ["bash", "-c", command], cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
