"""The processes in which fairseq's commands run."""

import subprocess
import sys

SCRIPT = """
from multiprocessing.spawn import get_preparation_data
from pathlib import Path
import fairseq_cli.train
from relumt.runs.step_processes import run_fairseq
from relumt.runs.run_config import FairseqCommand

fairseq_cli.train.cli_main = lambda: print("main:", get_preparation_data("x").get("init_main_from_name"))
raise SystemExit(run_fairseq(FairseqCommand(Path("log"), []), "train", append=False))
"""


def test_processes_of_a_training_on_several_gpus_import_fairseqs_command_first(tmp_path):
    """They import the main module of their parent; if that is relumt's, they cannot register it with fairseq."""
    (tmp_path / "main_of_relumt.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "main_of_relumt"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "log").read_text().splitlines() == ["main: fairseq_cli.train"]
