"""analysis.json, what `relumt analyze` measured of one or several checkpoints."""

import json
from pathlib import Path

from relumt.runs.comparability import SUBSET, evaluated
from relumt.runs.record import Record

ANALYSIS = "analysis.json"
SCHEMA = 2
"""Increased whenever the meaning of analysis.json changes."""


def is_analysed(folder: Path, record: Record) -> bool:
    """Whether a scored run's folder has an analysis of the checkpoint that was scored."""
    path = folder / ANALYSIS
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    analysed = [one["sha256"] for one in found.get("checkpoints", [])]
    wanted = (SCHEMA, SUBSET, [evaluated(record)["checkpoint_sha256"]])
    return (found.get("schema"), found.get("subset"), analysed) == wanted
