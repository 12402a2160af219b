"""What kills, signals and full disks do to `relumt prepare` and `relumt synth`."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attacks.attack import MARKER, ROOT, processes_with
from tests.prep.cases import PAIRS, write_bitext

pytestmark = pytest.mark.attack("faults")

SYNTH = ["synth", "--documents", "3", "--valid-documents", "3", "--test-documents", "3", "--out"]


# Full disks, kills and signals

ON_A_SMALL_DISK = 'mkdir small && mount -t tmpfs -o size="$1k" none small && shift && "$@"; s=$?; ls -A small; exit $s'
has_namespaces = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
needs_namespaces = pytest.mark.skipif(not has_namespaces, reason="needs user namespaces to mount a small disk")
RELUMT = [sys.executable, "-P", "-m", "relumt.cli"]


def on_a_small_disk(attack, kilobytes, *command):
    """Run a command with a disk of that size in the folder small."""
    words = ["unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, "sh", kilobytes, *command]
    return attack.process(words, allow_changes=True)


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
@pytest.mark.parametrize("kilobytes", range(100, 260, 16))
def test_a_sentencepiece_model_on_a_full_disk(attack, kilobytes):
    bitext = write_bitext(attack.folder)
    arguments = [*bitext.arguments(), "--bpe", "sentencepiece", "--vocab-size", "70", "--out", "small/out"]
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
import relumt.prep.workers as workers
workers.PARALLEL_FROM_BYTES, workers.CHUNK_BYTES, workers.MAX_PROCESSES = 1000, 10_000, 2
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
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_prepare_leaves_no_process_and_is_repeated(attack, number):
    bitext = write_bitext(attack.folder)
    bitext.write("train", PAIRS * 100)
    before = sorted(attack.folder.iterdir())
    arguments = [*bitext.arguments(), "--tokenize", "--vocab-size", "20"]

    def stop(process):
        wait_for(process, "spawn_main")
        if number == signal.SIGKILL:
            time.sleep(1)  # a worker that is not told what to do prints a traceback, which nobody is left to prevent
        process.send_signal(number)

    ended = attack.process([sys.executable, "-P", "-c", PREPARE, "prepare", *arguments], interrupt=stop, timeout=60)
    if number == signal.SIGKILL:
        assert [path.name for path in (attack.folder / "created").iterdir()] == [".data-bin.unfinished"]
    else:
        assert ended.status == 128 + number and sorted(attack.folder.iterdir()) == before
    assert attack.relumt("prepare", *arguments).status == 0
    assert [path.name for path in (attack.folder / "created").iterdir()] == ["data-bin"]


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
