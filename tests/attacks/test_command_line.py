"""Numbers, paths, standard streams and signals on the command line: every command ends with a status and one line."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.attack("flags")

DIGITS = "9" * 4301
NO_NUMBERS = ["nan", "-inf", "1e400", "", " 5 ", "٣", "1_000", "0x1F", "½", "1,5", "5\n"]
NO_INTEGERS = [*NO_NUMBERS, DIGITS, "-1", "1.0", "1e3", "2147483648"]
INTEGERS = [
    "analyze --max-tokens",
    "analyze --sentences",
    "analyze --map-sentence",
    "analyze --first-word",
    "contrast --batch-size",
    "corpus --vocab-size",
    "filter --max-tokens",
    "grid --gpus-per-job",
    "grid --jobs",
    "grid --jobs-per-gpu",
    "grid --seeds",
    "import-contrast --context",
    "prepare --max-length",
    "prepare --vocab-size",
    "reproduce --seeds",
    "score --time-limit",
    "synth --documents",
    "synth --seed",
    "synth --test-documents",
]


@pytest.mark.parametrize("option", INTEGERS)
def test_what_is_no_size_is_refused_before_anything_else(attack, option):
    command, flag = option.split()
    for value in NO_INTEGERS:
        error = attack.relumt(command, f"{flag}={value}").error
        assert f"argument {flag}: expected a whole number from" in error and len(error) < 300


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("filter --threshold", NO_NUMBERS),
        ("filter --keep", [*NO_NUMBERS, "0", "-0.1", "1.0000001", "1e-400", DIGITS]),
        ("prepare --max-ratio", NO_NUMBERS),
    ],
)
def test_what_is_no_number_is_refused_before_anything_else(attack, option, values):
    command, flag = option.split()
    for value in values:
        error = attack.relumt(command, f"{flag}={value}").error
        assert f"argument {flag}: expected a" in error and len(error) < 300


SCORE = "score-documents --hyp PATH --ref PATH --docs PATH"
READERS = [
    SCORE,
    "table --runs PATH",
    "table rela_table3 --runs PATH",
    "filter --checkpoint PATH --data PATH --src PATH --tgt other --out out",
    "filter --checkpoint other --data . --src other --tgt other2 --out PATH/out",
    "average PATH --out out.pt",
    "analyze PATH --data PATH --out out",
    "analyze other --data . --out PATH",
    "contrast --checkpoint PATH --data . --examples PATH",
    "import-contrast PATH --out out",
    "import-contrast other --documents PATH --out out",
    "score PATH",
    "score PATH --external true",
    "grid rela_table3 --root PATH",
    "reproduce rela_table3 --root PATH",
]
PATHS = {
    "empty": "",
    "null character": "a\0b",
    "line break": "a\nrelumt: error: b",
    "escape sequence": "a\x1b[2Jb",
    "changed direction": "a\u202egnp.b",
    "not UTF-8": os.fsdecode(b"a\xffb"),
    "name too long": "a" * 300,
    "path too long": "a/" * 2500,
    "symlink loop": "loop",
    "in a symlink loop": "loop/a",
    "dangling link": "dangling",
    "in a file": "other/a",
    "missing": "missing/a",
}


@pytest.mark.parametrize("command", READERS)
def test_paths_that_cannot_be_read_or_written(attack, command):
    (attack.folder / "loop").symlink_to("loop")
    (attack.folder / "dangling").symlink_to("nowhere")
    for name in ("other", "other2"):
        (attack.folder / name).write_text("a\n")
    for path in PATHS.values():
        ended = attack.relumt(*(word.replace("PATH", path) for word in command.split()))
        assert ended.status == 2 and ended.stderr == f"{ended.error}\n"
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", ended.stderr)


@pytest.mark.parametrize("command", ["table --runs PATH", SCORE, "average PATH --out out.pt"])
@pytest.mark.parametrize("path", ["/dev/null", "/etc", "/proc/self/mem", "/dev/full"])
def test_devices_and_folders_in_place_of_files(attack, command, path):
    assert attack.relumt(*(word.replace("PATH", path) for word in command.split())).status in (1, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["\n"],
        ["user-dir", "extra"],
        ["user-dir", "--unknown\n"],
        ["--versions"],
        ["table", "no\x1b[31msuch"],
        ["table", "--format", "docx"],
        ["table", "--dataset", "../x"],
        ["table", "--dataset", "**"],
        ["grid"],
        ["grid", "../../etc"],
        ["reproduce"],
        ["run"],
        ["filter", "--keep=--"],
        ["prepare", "--src=--"],
        ["run", "--no-stage"],
        ["synth", "--docu", "3"],
        ["analyze", "x", "--out", "out", "--map-sentence", "51"],
        ["filter", "--by", "length"],
        ["score-documents", "--hyp", "a", "--ref", "a", "--docs", "a", "--separator", "two words"],
    ],
)
def test_commands_that_do_not_exist(attack, arguments):
    ended = attack.relumt(*arguments)
    assert ended.status == 2 and ended.stderr == f"{ended.error}\n"


# Standard streams. `relumt table rela_table4` needs no runs, and `relumt user-dir` is the fastest command.


def bash(attack, command, **environment):
    command = command.replace("relumt ", f"{sys.executable} -P -m relumt.cli ")
    return attack.process(["bash", "-c", command], env=environment)


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("relumt user-dir >/dev/full", 1, "No space left on device"),
        ("relumt table rela_table4 >/dev/full", 1, "No space left on device"),
        ("relumt user-dir 2>&-", 0, ""),
        ("relumt user-dir 2>/dev/full", 0, ""),
        ("relumt user-dir <&-", 0, ""),
        ("relumt user-dir <&- 2>&- >/dev/null", 0, ""),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_streams_that_are_closed_or_full(attack, command, status, error, unbuffered):
    ended = bash(attack, command, PYTHONUNBUFFERED=unbuffered)
    assert ended.status == status and error in ended.stderr and "Exception ignored" not in ended.stderr


def test_data_is_printed_in_utf8_in_any_locale(attack):
    command = "from relumt.process import print_in_utf8; print_in_utf8(); "
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    printed = subprocess.run([sys.executable, "-c", f"{command}print('„ü“')"], env=environment, capture_output=True)
    attack.outcomes.append("handled")
    assert printed.stdout.decode() == "„ü“\n"


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_output_that_the_encoding_lacks_is_escaped(attack, environment):
    ended = bash(attack, "relumt table rela_table2 --runs 'ß→' 2>&1; relumt table rela_table4", **environment)
    assert "no finished run" in ended.stdout and "[RL] Table 4" in ended.stdout


@pytest.mark.parametrize("command", ["relumt user-dir", "relumt table rela_table4", "relumt table --help"])
def test_a_reader_that_leaves_early(attack, command):
    for unbuffered in ("", "1"):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run([sys.executable, "-m", "relumt.cli", *command.split()[1:]], stdout=writer,
                                 stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})  # fmt: skip
        os.close(writer)
        attack.outcomes.append("handled")
        assert process.returncode in (0, 128 + signal.SIGPIPE) and process.stderr == b""


# Signals.

WORKING = """
import os, signal, sys, time
from relumt import cli
class Module:
    add_arguments = staticmethod(lambda parser: None)
    @staticmethod
    def run(arguments):
        from relumt.files import atomic_file
        from pathlib import Path
        with atomic_file(Path("result")) as unfinished:
            unfinished.write_text("x")
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(10)
cli.importlib.import_module = lambda name: Module
cli.main(["synth"])
"""


@pytest.mark.attack("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_remove_what_is_unfinished(attack, number):
    process = subprocess.run([sys.executable, "-c", WORKING, str(int(number))], capture_output=True, cwd=attack.folder)
    attack.outcomes.append("handled")
    assert (process.returncode, process.stderr) == (128 + number, b"")
    assert not list(attack.folder.iterdir())


@pytest.mark.attack("signals")
def test_nohup_is_respected(attack):
    command = f"trap '' HUP; exec {sys.executable} -c '{WORKING.replace('sleep(10)', 'sleep(0)')}' 1"
    process = subprocess.run(["bash", "-c", command], capture_output=True, cwd=attack.folder)
    attack.outcomes.append("handled")
    assert process.returncode == 0 and (attack.folder / "result").read_text() == "x"


IN_A_CALLBACK = """
import os, sys, time
from relumt import cli
class Module:
    add_arguments = staticmethod(lambda parser: None)
    @staticmethod
    def run(arguments):
        class Deleted:
            def __del__(self):
                os.kill(os.getpid(), int(sys.argv[1]))
                time.sleep(0.01)
        Deleted()
        time.sleep(600)
cli.importlib.import_module = lambda name: Module
cli.main(["synth"])
"""


STARTED = "import sys; from relumt.cli import main; print('started', flush=True); main(sys.argv[1:])"


@pytest.mark.slow
@pytest.mark.attack("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_during_imports(attack, number):
    command = "filter --checkpoint x --data . --src a --tgt b --out c".split()
    for name in ("a", "b"):
        (attack.folder / name).write_text("a\n")
    for delay in (0.02, 0.05, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0):

        def interrupt(process, delay=delay):
            process.stdout.readline()  # what Python prints on Ctrl-C before relumt is loaded cannot be changed
            time.sleep(delay)
            process.send_signal(number)

        ended = attack.process([sys.executable, "-c", STARTED, *command], interrupt=interrupt)
        assert ended.status in (2, 128 + number), ended.stderr
