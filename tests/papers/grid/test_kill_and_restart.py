"""A grid that is killed three times and restarted prints the table of one that was left alone."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path):
    settings = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [str(ROOT / "scripts" / "reproduce.sh"), "reluformer_table5", "--preset", "smoke", "--jobs", "2"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    start = time.monotonic()
    undisturbed = subprocess.run(command, env=settings | {"RUNS": "undisturbed"}, check=True, **options).stdout
    duration = time.monotonic() - start
    generator = random.Random(1)
    for _ in range(3):
        grid = subprocess.Popen(command, env=settings | {"RUNS": "killed"}, start_new_session=True, **options)
        try:
            grid.wait(generator.uniform(0.1, 0.6) * duration)
        except subprocess.TimeoutExpired:
            os.killpg(grid.pid, signal.SIGKILL)
            grid.wait()
    restarted = subprocess.run(command, env=settings | {"RUNS": "killed"}, check=True, **options).stdout
    assert table_lines(restarted) == table_lines(undisturbed) != []
    translations = sorted((tmp_path / "undisturbed").glob("smoke/*/1/test.hyp"))
    assert len(translations) == 4  # the models that start from relumt's initialization
    for translation in translations:
        counterpart = tmp_path / "killed" / translation.relative_to(tmp_path / "undisturbed")
        assert translation.read_text() == counterpart.read_text(), translation


def table_lines(output):
    return re.findall(r"^\|.*\|$", output, flags=re.MULTILINE)
