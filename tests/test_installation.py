"""Installing relumt beside a user's own fairseq, in a fresh environment and without a network.

The environment has relumt's dependencies but no fairseq; the fairseq in it is a dummy that is installed as a user
installs a checkout.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from relumt.installation import SUPPORTED_VERSIONS
from tests.fairseq_cases import commit_all, write_editable_installation, write_fairseq

ROOT = Path(__file__).parents[1]
(SUPPORTED,) = SUPPORTED_VERSIONS
OWN_PACKAGES = ("fairseq", "relumt", "__editable__", "alignment_train")
"""Files that the fresh environment must not see. It sees pip, and setuptools, which torch requires."""

PIP_INSTALL = ["-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]


class Environment(NamedTuple):
    """A virtual environment: its Python, its site-packages, and a copy of relumt's source beside it."""

    python: Path
    site: Path
    source: Path

    def run(self, *arguments: object) -> subprocess.CompletedProcess:
        """Run Python outside any checkout."""
        command = [str(self.python), *map(str, arguments)]
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
        return subprocess.run(
            command, cwd=self.source.parent, env=variables, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Environment:
    """An environment into which relumt is installed beside a checkout of fairseq 0.12.2."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    site = folder / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(OWN_PACKAGES):
            (dependencies / path.name).symlink_to(path)
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "relumt", source / "relumt", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    checkout = folder / "checkout"
    write_fairseq(checkout, "0.12.2", "checkpoints = 'as before'\n")
    commit_all(checkout)
    write_editable_installation(site, checkout)
    fresh = Environment(folder / "venv" / "bin" / "python", site, source)
    done = fresh.run(*PIP_INSTALL, source)
    assert done.returncode == 0, done.stderr
    return fresh


@pytest.mark.slow
def test_without_extras_relumt_leaves_an_existing_fairseq_alone(environment):
    code = """
import sys, importlib.metadata
import relumt.attention
assert "fairseq" not in sys.modules
import fairseq
before = dict(vars(fairseq))
for name in [name for name in sys.modules if name.startswith("relumt")]:
    del sys.modules[name]
import relumt.attention
assert vars(fairseq) == before and not any(name.startswith("fairseq.") for name in sys.modules)
print(importlib.metadata.version("fairseq"), fairseq.__file__)
"""
    done = environment.run("-P", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.12.2", str(environment.source.parent / "checkout" / "fairseq" / "__init__.py")]
    listed = environment.run("-m", "pip", "list", "--disable-pip-version-check").stdout
    assert "fairseq-fixed" not in listed and "relumt " in listed
    files = {path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.*ml")}
    assert files and all((environment.site / "relumt" / path).is_file() for path in files)


@pytest.mark.slow
def test_a_command_refuses_the_existing_fairseq(environment, tmp_path):
    for language in ("de", "en"):
        (tmp_path / f"text.{language}").write_text("a b c\n" * 10)
    text = tmp_path / "text"
    splits = [argument for split in ("train", "valid", "test") for argument in (f"--{split}", text)]
    data_bin = tmp_path / "data-bin"
    prepare = ["prepare", "--src", "de", "--tgt", "en", "--bpe", "none", *splits, "--out", data_bin]
    done = environment.run("-P", "-m", "relumt.cli", *prepare)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    folder = environment.source.parent
    assert done.stderr.startswith(f"relumt: error: expected fairseq {SUPPORTED}, found 0.12.2 in {folder}")
    assert not data_bin.exists()
