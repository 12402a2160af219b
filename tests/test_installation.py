"""What an installation of relumt without extras has, and that it needs no fairseq."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_an_installation_has_its_settings_and_attention_without_fairseq(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"  # a build leaves files in its source
    shutil.copytree(ROOT / "relumt", source / "relumt", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, source], check=True)
    code = "import sys; sys.path[:0] = '.'; import relumt.attention; print(relumt.__file__, 'fairseq' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=site, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(site / "relumt" / "__init__.py"), "False"]
    files = {path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.*ml")}
    assert files and all((site / "relumt" / path).is_file() for path in files)
