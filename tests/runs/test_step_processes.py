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


WITHOUT_A_READER = """
import time
from pathlib import Path
import fairseq_cli.generate
from relumt.runs.run_config import FairseqCommand
from relumt.runs.step_processes import run_fairseq

def command():
    print("first", flush=True)
    time.sleep(1)
    print("last")

fairseq_cli.generate.cli_main = command
raise SystemExit(run_fairseq(FairseqCommand(Path("log"), []), "generate", append=False))
"""


def test_a_command_whose_output_is_read_by_head_goes_on_with_its_log(tmp_path):
    (tmp_path / "command.py").write_text(WITHOUT_A_READER)
    pipeline = f'{sys.executable} command.py | head -1; exit "${{PIPESTATUS[0]}}"'
    ended = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "first\n"), ended.stderr
    assert (tmp_path / "log").read_text() == "first\nlast\n"


def test_a_log_that_cannot_be_written_is_a_failure(tmp_path):
    (tmp_path / "command.py").write_text(
        WITHOUT_A_READER.replace('Path("log")', 'Path("full")').replace("False", "True")
    )
    (tmp_path / "full").symlink_to("/dev/full")
    ended = subprocess.run([sys.executable, "command.py"], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1 and "No space left" in ended.stderr
