"""A checkout whose scripts do in a moment what the real ones do in hours."""

import stat
from pathlib import Path

import pytest

from relumt.tables.experiments import Experiment

SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
folder=$RUNS/$1/$2/$SEED
mkdir -p "$folder"
trap 'date +%s.%N >> "$folder/calls"; echo "${CUDA_VISIBLE_DEVICES-}" >> "$folder/calls"' EXIT
date +%s.%N > "$folder/calls"
case $2 in
    refused) echo "relumt: error: of other flags" >&2; exit 2 ;;
    fails) echo "it is broken" >&2; exit 1 ;;
    sleeps) sleep 60 & echo "$!" > "$folder/pid"; wait ;;
    diverges) echo '{"diverged": {"update": 3, "reason": "inf"}}' > "$folder/run.json" ;;
    leaves_nothing) ;;
    *) sleep 0.1; echo '{"evaluation": {"test": {}}}' > "$folder/run.json" ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("run.sh", "analyze.sh"):
        path = folder / "scripts" / name
        path.write_text(SCRIPT)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def cells(*models: str) -> list[Experiment]:
    return [Experiment("data", model) for model in models]
