"""A checkout whose scripts do in a moment what the real ones do in hours."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from relumt.runs.record import Divergence, save_record
from relumt.tables.experiments import Experiment
from tests.runs.cases import scored_record

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
    diverges) cp "$(dirname "$0")/diverged.json" "$folder/run.json" ;;
    leaves_nothing) ;;
    *) sleep 0.1; cp "$(dirname "$0")/scored.json" "$folder/run.json" ;;
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
    scored = scored_record("data", "model")
    for name, record in (("scored", scored), ("diverged", replace(scored, divergence=Divergence(3, "inf")))):
        save_record(folder, record)
        (folder / "run.json").rename(folder / "scripts" / f"{name}.json")
    return folder


def cells(*models: str) -> list[Experiment]:
    return [Experiment("data", model) for model in models]
