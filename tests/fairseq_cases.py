"""Dummies of fairseq: a package of a few lines, installed in one of the ways in which users install it."""

import json
import subprocess
from pathlib import Path


def write_fairseq(folder: Path, version: str, code: str = "") -> Path:
    """Write a package `fairseq` that states its version into `folder`, and return its path."""
    package = folder / "fairseq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (package / "version.txt").write_text(f"{version}\n")
    return package


def write_editable_installation(site: Path, checkout: Path) -> None:
    """Write what pip records in `site` about an editable installation of a checkout of fairseq 0.12.2."""
    info = site / "fairseq-0.12.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.2\n")
    (info / "top_level.txt").write_text("fairseq\nfairseq_cli\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": checkout.as_uri()}))
    (site / "fairseq.pth").write_text(f"{checkout}\n")
    (info / "RECORD").write_text("fairseq.pth,,\n")


def commit_all(folder: Path) -> str:
    """Commit everything in a folder to a repository of its own, and return the commit."""
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()
