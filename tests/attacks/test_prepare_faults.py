"""What kills, signals, full disks and a failing fairseq-preprocess do to `relumt prepare` and `relumt synth`."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from relumt.prep import binarization
from tests.attacks.attack import MARKER, ROOT, processes_with
from tests.prep.cases import PAIRS, preprocess_in_process, write_bitext

pytestmark = pytest.mark.attack("faults")

SYNTH = ["synth", "--documents", "3", "--valid-documents", "3", "--test-documents", "3", "--out"]


# Failures of fairseq-preprocess


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'OSError: [Errno 28] No space left on device'; exit 1", "No space left on device"),
        ("exit 7", "failed with status 7: no output"),
        ("kill -9 $$", "was ended by signal 9; is there enough memory?"),
        ("kill -11 $$", "was ended by signal 11"),
        (r"printf '\377\000\033[2J\n'; exit 1", "failed with status 1"),
        (r"printf 'a\nb\r\n\n'; exit 1", "failed with status 1: b"),
        ("yes | head -c 3000000; exit 1", "failed with status 1: y"),
    ],
)
@pytest.mark.parametrize("log", [True, False])
def test_a_failure_of_fairseq_says_why(attack, monkeypatch, tmp_path, script, message, log):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    directory = tmp_path if log else tmp_path / "missing"
    create = partial(tempfile.NamedTemporaryFile, dir=directory)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", create)
    ended = attack.relumt("prepare", *write_bitext(attack.folder).arguments(), "--bpe", "none", allow_changes=True)
    assert ended.status == 1 and message in ended.error
    assert ("see its output" in ended.error) == (log and "signal" not in message)
    assert not (attack.folder / "created").exists()


# Full disks, kills and signals

ON_A_SMALL_DISK = 'mkdir small && mount -t tmpfs -o size="$1k" none small && shift && "$@"; s=$?; ls -A small; exit $s'
has_namespaces = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
needs_namespaces = pytest.mark.skipif(not has_namespaces, reason="needs user namespaces to mount a small disk")
RELUMT = [sys.executable, "-P", "-m", "relumt.cli"]


def on_a_small_disk(attack, kilobytes, *command):
    """Run a command with a disk of that size in the folder small."""
    words = ["unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, "sh", kilobytes, *command]
    environment = {"TMPDIR": str(attack.folder.parent)}  # where the log of fairseq-preprocess is kept
    return attack.process(words, env=environment, allow_changes=True)


@needs_namespaces
@pytest.mark.parametrize("kilobytes", [4, 16])
def test_a_generated_corpus_on_a_full_disk(attack, kilobytes):
    ended = on_a_small_disk(attack, kilobytes, *RELUMT, *SYNTH, "small/out")
    assert ended.status == 1 and "free some disk space" in ended.error
    assert ended.stdout == ""  # nothing is left


@needs_namespaces
@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [8, 24, 48, 64, 80, 96])
def test_a_data_bin_on_a_full_disk(attack, kilobytes):
    bitext = write_bitext(attack.folder)
    arguments = [*bitext.arguments(), "--bpe", "none", "--out", "small/out"]
    ended = on_a_small_disk(attack, kilobytes, *RELUMT, "prepare", *arguments)
    assert (ended.status == 1 and ended.stdout == "" and "No space left on device" in ended.error) or (
        ended.status == 0 and ended.stdout == "out\n"
    )


@needs_namespaces
@pytest.mark.slow
def test_a_mount_point_is_refused(attack):
    bitext = write_bitext(attack.folder)
    arguments = [*bitext.arguments(), "--bpe", "none", "--out", "small"]
    ended = on_a_small_disk(attack, 900, *RELUMT, "prepare", *arguments)
    assert ended.status == 2 and "is a mount point" in ended.error


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_limit_on_file_sizes(attack, blocks):
    command = f'ulimit -f {blocks}; exec "$@"'
    words = ["bash", "-c", command, "bash", *RELUMT, *SYNTH, "out", "--documents", "60"]
    ended = attack.process(words, allow_changes=True)
    assert ended.status == 1 and "raise the limit on the size of files" in ended.error
    assert list(attack.folder.iterdir()) == []


PREPARE = """
import sys
import relumt.text_files as text_files
text_files.PARALLEL_FROM_LINES, text_files.BATCH_LINES, text_files.MAX_PROCESSES = 10, 100, 2
from relumt.cli import main
main(sys.argv[1:])
"""
"""`relumt prepare` with worker processes although the text is short."""


def wait_for(process: subprocess.Popen, part: str) -> None:
    """Wait until a descendant of the process has `part` in its command line."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
        markers = [entry.partition("=")[2] for entry in environ if entry.startswith(MARKER)]  # none before exec
        for other in processes_with(markers[0]) if markers else ():
            command = Path(f"/proc/{other}/cmdline")
            if other != process.pid and command.exists() and part.encode() in command.read_bytes():
                return
        time.sleep(0.02)
    pytest.fail(f"no process {part!r} was started")


@pytest.mark.slow
@pytest.mark.attack("signals")
@pytest.mark.parametrize("part", ["spawn_main", "fairseq_cli.preprocess"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_prepare_leaves_no_process_and_is_repeated(attack, monkeypatch, part, number):
    bitext = write_bitext(attack.folder)
    bitext.write("train", PAIRS * 100)
    before = sorted(attack.folder.iterdir())
    arguments = [*bitext.arguments(), "--tokenize", "--vocab-size", "20"]

    def stop(process):
        wait_for(process, part)
        if number == signal.SIGKILL and part == "spawn_main":
            time.sleep(1)  # a worker that is not told what to do prints a traceback, which nobody is left to prevent
        process.send_signal(number)

    ended = attack.process([sys.executable, "-P", "-c", PREPARE, "prepare", *arguments], interrupt=stop, timeout=60)
    if number == signal.SIGKILL:
        assert [path.name for path in (attack.folder / "created").iterdir()] == [".data-bin.unfinished"]
    else:
        assert ended.status == 128 + number and sorted(attack.folder.iterdir()) == before
    monkeypatch.setattr(binarization, "run_fairseq_preprocess", preprocess_in_process)
    assert attack.relumt("prepare", *arguments).status == 0
    assert [path.name for path in (attack.folder / "created").iterdir()] == ["data-bin"]


WORKERS = """
import multiprocessing, time
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("ready", flush=True)
    pool.map(time.sleep, [600, 600])
"""

PARENT = """
import subprocess, sys, time
from relumt.child_processes import command_of_child
command = [word for word in command_of_child("workers", []) if word != "-P"]
subprocess.Popen(command, start_new_session=True).wait()
"""


@pytest.mark.attack("signals")
def test_workers_of_a_child_end_with_a_killed_parent(attack):
    (attack.folder / "workers.py").write_text(WORKERS)

    def kill(process):
        process.stdout.readline()
        time.sleep(0.1)  # for the workers to start
        process.kill()

    environment = {"PYTHONPATH": f"{Path.cwd()}:{ROOT}"}
    attack.process([sys.executable, "-c", PARENT], env=environment, interrupt=kill)


@pytest.mark.attack("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_stopped_generation_leaves_nothing_for_long(attack, number):
    def stop(process):
        end = time.monotonic() + 30
        while not list(attack.folder.glob(".out.unfinished/result/train.de")) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(number)

    ended = attack.process(["relumt", *SYNTH, "out", "--documents", "1000000"], interrupt=stop)
    assert ended.status == (-number if number == signal.SIGKILL else 128 + number)
    assert (list(attack.folder.iterdir()) == []) == (number != signal.SIGKILL)
    assert attack.relumt(*SYNTH, "out").status == 0
    assert [path.name for path in attack.folder.iterdir()] == ["out"]
    assert json.loads(Path("out/corpus.json").read_text())["documents"]["train"] == 3


@pytest.mark.slow
@pytest.mark.attack("injection")
def test_the_script_executes_nothing_from_names(attack):
    payload = f"touch {attack.canary.name}"
    bitext = write_bitext(attack.folder / f"$({payload})")
    out = f"`{payload}`;{payload}"
    arguments = [*bitext.arguments(), "--bpe", "none", "--out", out]
    assert attack.process([ROOT / "data_prep" / "prepare.sh", *arguments]).status == 0
    assert (attack.folder / out / "prepare.json").is_file() and not list(attack.folder.rglob(attack.canary.name))
