"""A checkout whose scripts take a moment instead of hours."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from relumt.papers.experiments import Experiment
from relumt.papers.grid.jobs import Job, create_jobs
from relumt.runs.record import Divergence, save_record
from tests.runs.cases import scored_record

SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
folder=$RUNS/$1/$2/$SEED
mkdir -p "$folder"
trap 'date +%s.%N >> "$folder/calls"; echo "${CUDA_VISIBLE_DEVICES-}
${OMP_NUM_THREADS:-}" >> "$folder/calls"' EXIT
date +%s.%N > "$folder/calls"
case $2 in
    refused) echo "relumt: error: other flags" >&2; exit 2 ;;
    fails) echo "it is broken" >&2; exit 1 ;;
    sleeps) echo "$$" > "$folder/pid"; exec sleep 60 ;;  # as the scripts start Python
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


def make_jobs(root: Path, runs: Path, *models: str) -> list[Job]:
    return create_jobs([Experiment("data", model) for model in models], [1], runs, root, ())
