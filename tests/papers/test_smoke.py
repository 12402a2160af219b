"""Tables reproduced from scratch by scripts/smoke.sh, as a user would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def smoke(tmp_path):
    """Return a function that reproduces tables with preset smoke, and returns the folder of the results."""

    def reproduce(*tables):
        settings = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        command = [ROOT / "scripts" / "smoke.sh", *tables]
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return tmp_path / "smoke"

    return reproduce


def test_a_relative_python_runs_in_the_folder_of_the_results_and_its_failure_is_reported(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    command, settings = [ROOT / "scripts" / "smoke.sh", "rela_table4"], os.environ | {"PYTHON": "bin/python"}
    for listing in ("echo ImportError >&2; exit 1", "echo rela_table4"):
        branches = f'*find_spec*) ;; *TABLES*) {listing} ;; *) echo "$*" ;;'
        python.write_text(f'#!/usr/bin/env bash\ncase "$*" in {branches} esac\n')
        python.chmod(0o755)
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
        if "exit 1" in listing:
            message = f"relumt: error: {python} cannot list the tables; its messages are above"
            assert (done.returncode, done.stderr) == (1, f"ImportError\n{message}\n")
            assert not (tmp_path / "smoke").exists()
    assert (done.returncode, done.stdout) == (0, "rela_table4: smoke/rela_table4.md\n")
    assert " rela_table4 --preset smoke" in (tmp_path / "smoke" / "rela_table4.md").read_text()


@pytest.mark.end_to_end
def test_a_figure_with_analysis(smoke):
    folder = smoke("rela_figure7")
    assert "| layer 1 | " in (folder / "rela_figure7.md").read_text()
    assert [path.parent.name for path in folder.glob("runs/smoke/*/1")] == ["rela_g"]


@pytest.mark.slow
def test_tables_of_documents_and_of_speeds(smoke):
    folder = smoke("reluformer_table6", "rela_figure2", "rela_table2", "reluformer_table1")
    documents = (folder / "reluformer_table6.md").read_text()
    assert "| transformer | 31.19 |" in documents and "smoke_documents: test set, seeds 1" in documents
    assert "training, 3 steps" in (folder / "rela_table2.md").read_text()
    assert "decoding with beam 1" in (folder / "rela_figure2.md").read_text()
    assert "| ffn_swiglu | " in (folder / "reluformer_table1.md").read_text()
    trained = {path.parent.name for path in folder.glob("runs/smoke*/*/1")}
    assert trained == {"softmax", "sparsemax", "reluformer", "entmax15", "rela_g"}
