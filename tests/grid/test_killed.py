"""A grid that is killed three times ends in the table of one that was left alone."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "tables" / "reluformer_table5.sh"


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path):
    settings = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [str(SCRIPT), "--preset", "smoke", "--jobs", "2"]
    run = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    begun = time.monotonic()
    whole = subprocess.run(command, env=settings | {"RUNS": "whole"}, check=True, **run).stdout
    took = time.monotonic() - begun
    moments = random.Random(1)
    for _ in range(3):
        grid = subprocess.Popen(command, env=settings | {"RUNS": "killed"}, start_new_session=True, **run)
        try:
            grid.wait(moments.uniform(0.1, 0.6) * took)
        except subprocess.TimeoutExpired:
            os.killpg(grid.pid, signal.SIGKILL)
            grid.wait()
    again = subprocess.run(command, env=settings | {"RUNS": "killed"}, check=True, **run).stdout
    assert table_of(again) == table_of(whole)
    for model in ("reluformer", "relu_unscaled", "relu_unregularised"):
        texts = [(tmp_path / runs / "smoke" / model / "1" / "test.hyp").read_text() for runs in ("whole", "killed")]
        assert texts[0] == texts[1], model


def table_of(output):
    return re.findall(r"^\|.*\|$", output, flags=re.MULTILINE)
