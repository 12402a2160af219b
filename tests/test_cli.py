"""The `relumt` command."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from relumt import cli
from relumt.errors import AttemptFailedError, UserError


def test_user_dir_is_the_package(capsys):
    cli.main(["user-dir"])
    assert Path(capsys.readouterr().out.strip()) == Path(cli.__file__).parent


IMPORT_COMMANDS = """
import argparse, importlib
for name in cli.COMMANDS:
    importlib.import_module(f"relumt.commands.{name.replace('-', '_')}").add_arguments(argparse.ArgumentParser())
"""


@pytest.mark.parametrize("code", [IMPORT_COMMANDS, "cli.main(['user-dir'])", "cli.main(['table', 'rela_table4'])"])
def test_torch_is_loaded_only_if_it_is_needed(code, tmp_path):
    code = f"from relumt import cli\n{code}\nimport sys\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"relumt {name}" in capsys.readouterr().out


def exit_status_after(error, monkeypatch):
    class Module:
        add_arguments = staticmethod(lambda parser: None)

        @staticmethod
        def run(arguments):
            raise error

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Module)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["synth"])
    return stopped.value.code


def test_a_user_error_prints_one_line_and_exits_with_status_2(monkeypatch, capsys):
    assert exit_status_after(UserError("corpus.de: the file is empty; choose another one"), monkeypatch) == 2
    assert capsys.readouterr().err == "relumt: error: corpus.de: the file is empty; choose another one\n"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (AttemptFailedError("no network; try again"), 1, "no network; try again"),
        (OSError(28, "No space left on device", "out"), 1, "out: No space left on device; free some disk space"),
        (OSError(5, "Input/output error"), 1, "Input/output error; check the disk"),
        (
            FileNotFoundError(2, "No such file or directory", "a\nb"),
            2,
            r"a\nb: No such file or directory; check the path",
        ),
        (OSError("cannot be read"), 2, "cannot be read"),
        (RuntimeError("Symlink loop from 'a'"), 2, "Symlink loop from 'a'; check the path"),
        (MemoryError(), 1, "out of memory; use smaller batches, or a machine with more memory"),
        (RecursionError(), 2, "an input is nested too deeply to be read; check the files"),
    ],
)
def test_errors_that_a_user_can_cause_print_one_line(monkeypatch, capsys, error, status, message):
    assert exit_status_after(error, monkeypatch) == status
    assert capsys.readouterr().err == f"relumt: error: {message}\n"


@pytest.mark.parametrize("error", [RuntimeError("x"), ValueError("x"), KeyError("x")])
def test_other_errors_keep_their_traceback(monkeypatch, error):
    with pytest.raises(type(error)):
        exit_status_after(error, monkeypatch)


def test_ctrl_c_exits_with_status_130(monkeypatch):
    assert exit_status_after(KeyboardInterrupt(), monkeypatch) == 130


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"relumt {version('relumt')}\n"
