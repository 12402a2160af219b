"""fairseq's commands as processes: what is printed and logged, and how they end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relumt.runs.launch import FairseqCommand, run_fairseq

ROOT = Path(__file__).resolve().parents[2]
COMMAND = FairseqCommand(Path("log"), ["data", "--adam-betas", "(0.9, 0.98)"], is_verbose=True)
LINE = "\n$ fairseq-train data --adam-betas '(0.9, 0.98)'\n"


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Write what `python -m fairseq_cli.train` runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'stub'}:{ROOT}")

    def write(script):
        (tmp_path / "stub" / "fairseq_cli").mkdir(parents=True)
        (tmp_path / "stub" / "fairseq_cli" / "__init__.py").touch()
        (tmp_path / "stub" / "fairseq_cli" / "train.py").write_text(script)

    return write


def test_commands_are_printed_and_logged_with_their_output(stub, capfdbinary):
    stub("import sys; print(sys.argv[2:]); print('Lösung', file=sys.stderr); sys.exit(3)")
    Path("log").write_text("earlier\n")
    os.link("log", "backup")
    assert run_fairseq("train", COMMAND, append=False) == 3
    text = f"{LINE}['--adam-betas', '(0.9, 0.98)']\nLösung\n"
    assert sorted(Path("log").read_text().splitlines()) == sorted(text.splitlines())
    assert capfdbinary.readouterr().out == Path("log").read_bytes()
    assert Path("backup").read_text() == "earlier\n"
    run_fairseq("train", COMMAND, append=True)
    assert Path("log").read_text().count(LINE) == 2


RUN = """
from pathlib import Path
from relumt.process import command_line
from relumt.runs.launch import FairseqCommand, run_fairseq
with command_line():
    raise SystemExit(run_fairseq("train", FairseqCommand(Path("log"), [], is_verbose=True), append=True))
"""


def test_a_command_whose_output_is_read_by_head_goes_on_with_its_log(stub):
    stub("import time; print('first', flush=True); time.sleep(0.3); print('last')")
    pipeline = f'{sys.executable} -c "$0" | head -3; exit "${{PIPESTATUS[0]}}"'
    ended = subprocess.run(["bash", "-c", pipeline, RUN], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "\n$ fairseq-train \nfirst\n"), ended.stderr
    assert Path("log").read_text() == "\n$ fairseq-train \nfirst\nlast\n"


def test_a_log_that_cannot_be_written_ends_the_command(stub):
    stub("import time; print('x' * 10_000, flush=True); time.sleep(300)")
    Path("log").symlink_to("/dev/full")
    ended = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "No space left on device; free some disk space" in ended.stderr
