"""scripts/reproduce.sh as a user calls it: one without runs, one with an analysis, one of documents."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("rela_table4", "rela_figure7", "reluformer_table6")


@pytest.mark.first
def test_three_tables_from_nothing(tmp_path):
    settings = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [ROOT / "scripts" / "smoke.sh", *TABLES]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    smoke = tmp_path / "smoke"
    of_documents = (smoke / "reluformer_table6.md").read_text()
    assert "| transformer | 31.19 |" in of_documents and "smoke_documents: test set, seeds 1" in of_documents
    assert "| layer 1 | " in (smoke / "rela_figure7.md").read_text()
    assert (smoke / "runs" / "rela_figure7-smoke" / "report.html").is_file()
    trained = {path.parent.name for path in smoke.glob("runs/smoke*/*/1")}
    assert trained == {"softmax", "sparsemax", "reluformer", "rela_g"}
