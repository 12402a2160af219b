"""The `relumt` command: its subcommands, what it loads, and how it ends on errors and signals."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from relumt import cli, installation
from relumt.attention import MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.errors import AttemptFailedError, UserError
from relumt.plugin.options import ARCHITECTURES
from relumt.process import positive_integer, share, whole_number
from relumt.runs.dataset_config import read_models

ROOT = Path(__file__).parents[1]


def exit_status_after(arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    return stopped.value.code


def test_user_dir_is_the_package_and_the_version_is_printed(capsys):
    cli.main(["user-dir"])
    assert Path(capsys.readouterr().out.strip()) == Path(cli.__file__).parent
    assert exit_status_after(["--version"]) == 0
    assert capsys.readouterr().out == f"relumt {version('relumt')}\n"


EVERY_HELP = """
for name in cli.COMMANDS:
    try:
        cli.main([name, "--help"])
    except SystemExit as stopped:
        assert stopped.code == 0
"""


def test_every_help_and_some_commands_load_no_torch(tmp_path):
    (tmp_path / "runs").mkdir()
    code = f"from relumt import cli\n{EVERY_HELP}\ncli.main(['user-dir'])\ncli.main(['table', 'rela_table4'])"
    code += "\nimport sys\nassert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert all(f"usage: relumt {name} " in printed for name in cli.COMMANDS)
    assert "Print the folder to pass to fairseq's --user-dir." in printed


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UserError("corpus.de: empty; choose another one"), 2, "corpus.de: empty; choose another one"),
        (AttemptFailedError("no network; try again"), 1, "no network; try again"),
        (OSError(28, "No space left", "out"), 1, "out: No space left; free some disk space, or memory in /dev/shm"),
        (OSError(24, "Too many open files"), 1, "Too many open files; allow more open files (ulimit -n)"),
        (
            FileNotFoundError(2, "No such file or directory", "a\nb"),
            2,
            r"a\nb: No such file or directory; check the path",
        ),
        (MemoryError(), 1, "out of memory; use smaller batches, or a machine with more memory"),
    ],
)
def test_errors_that_a_user_can_cause_print_one_line(monkeypatch, capsys, error, status, message):
    monkeypatch.setattr(cli, "run_command", raising(error))
    assert exit_status_after([]) == status
    assert capsys.readouterr().err == f"relumt: error: {message}\n"


def raising(error):
    def run(*_):
        raise error

    return run


REQUIREMENTS = ["torch>=2", *(f"{name}; extra == '{extra}'" for name, extra in (
    ("fairseq-fixed==0.12.3.1", "fairseq"), ("subword-nmt", "fairseq"), ("jinja2", "report"), ("jinja2", "dev")
))]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "extra"),
    {"fairseq.data": "fairseq", "subword_nmt": "fairseq", "jinja2": "report", "torch": "", "fair": "", "": ""}.items(),
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(monkeypatch, capsys, module, extra):
    monkeypatch.setattr(installation, "requires", lambda _: REQUIREMENTS)
    monkeypatch.setattr(cli, "run_subcommand", raising(ModuleNotFoundError(name=module)))
    if not extra:
        with pytest.raises(ModuleNotFoundError):
            cli.main(["table"])
        return
    assert exit_status_after(["table"]) == 2
    advice = f"which is not installed; run pip install 'relumt[{extra}]'"
    assert capsys.readouterr().err == f"relumt: error: relumt table needs {module}, {advice}\n"


def test_other_errors_keep_their_traceback_and_ctrl_c_is_status_130(monkeypatch):
    for error in (RuntimeError("x"), KeyError("x")):
        monkeypatch.setattr(cli, "run_command", raising(error))
        with pytest.raises(type(error)):
            cli.main([])
    monkeypatch.setattr(cli, "run_command", raising(KeyboardInterrupt()))
    assert exit_status_after([]) == 130


@pytest.mark.parametrize("arguments", [[], ["no-command"], ["user-dir", "--x\ny"], ["synth", "--docu", "3"], ["grid"]])
def test_wrong_arguments_print_one_line_and_have_status_2(capsys, arguments):
    assert exit_status_after(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("relumt: error: ") and error.count("\n") == 1 and "--help" in error


def test_the_ends_of_ranges_are_in_them():
    assert (whole_number("0"), positive_integer("1"), share("0"), share("1")) == (0, 1, 0, 1)


WORKING = """
import os, sys, time
from pathlib import Path
from relumt.files import atomic_file
from relumt.process import command_line, start_child
with command_line(), atomic_file(Path("result")) as unfinished:
    unfinished.touch()
    print(start_child(["sleep", "60"]).pid, "ü→", flush=True)
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_removes_what_is_unfinished_and_ends_child_processes(tmp_path, monkeypatch, number):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[1]))
    command = [sys.executable, "-c", WORKING, str(int(number))]
    ended = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False, timeout=50)
    child, text = ended.stdout.decode("utf-8").split()
    assert text == "ü→"
    killed = number == signal.SIGKILL
    assert (ended.returncode, ended.stderr) == (-9 if killed else 128 + number, b"")
    assert len(list(tmp_path.iterdir())) == killed
    deadline = time.monotonic() + 10
    while Path("/proc", child).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path("/proc", child).exists() or "Z" in Path("/proc", child, "stat").read_text().rpartition(")")[2]


DRAWING = """
import subprocess, sys
from pathlib import Path
from relumt.process import command_line
with command_line():
    from relumt.analysis.plots import Figure, save_figure
    save_figure(Figure(), Path("plots"), "empty")
    child = "import os, sys; print(os.environ['LOGLEVEL'], sys.stdout.encoding, open('text', 'w').encoding)"
    print(subprocess.check_output([sys.executable, "-c", child], text=True))
"""


def test_settings_of_notebooks_and_shells_change_no_command(tmp_path):
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    settings = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "LOGLEVEL": "WARNING"}
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | locale | settings
    command = [sys.executable, "-c", DRAWING]
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert printed.split() == ["INFO", "utf-8", "utf-8"] and (tmp_path / "plots" / "empty.svg").is_file()


def test_a_hangup_that_the_parent_ignores_stays_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[1]))
    program = WORKING.replace("sleep(60)", "sleep(0)")
    command = ["bash", "-c", 'trap "" HUP; exec "$@"', "bash", sys.executable, "-c", program, "1"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=50)
    assert (tmp_path / "result").is_file()


def test_a_reader_that_leaves_early_and_a_full_disk_end_a_command_in_one_line_at_most():
    command = [sys.executable, "-m", "relumt.cli", "user-dir"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    message = "No space left on device; free some disk space, or memory in /dev/shm"
    assert (ended.returncode, ended.stderr) == (1, f"relumt: error: {message}\n")
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_models_lists_everything_that_can_be_trained(capsys):
    cli.main(["models", "--configs", str(ROOT / "configs")])
    printed = capsys.readouterr().out
    listed = [line.split()[0] for line in printed.splitlines() if re.match(r"  \w", line)]
    models = read_models(ROOT / "configs")
    assert set(listed) >= {*MECHANISMS, *FEEDFORWARDS, *ARCHITECTURES, *models}
    assert printed.count("--relu-gamma: γ of [RF] Eq. 6, which divides the weights (default: 1.0)") == 1
    assert "  reluformer            --arch reluformer --relu-gamma 1.0 --criterion label_smoothed_cross" in printed
