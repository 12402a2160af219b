"""Dummies of fairseq: a package of a few lines, installed in one of the ways in which users install it."""

import subprocess
from pathlib import Path


def write_fairseq(folder: Path, version: str, code: str = "") -> Path:
    """Write a package `fairseq` that states its version into `folder`, and return its path."""
    package = folder / "fairseq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (package / "version.txt").write_text(f"{version}\n")
    return package


def commit_all(folder: Path) -> str:
    """Commit everything in a folder to a repository of its own, and return the commit."""
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()
