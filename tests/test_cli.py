"""The `relumt` command."""

import subprocess
import sys
from pathlib import Path

import pytest

from relumt import cli
from relumt.errors import UserError


def test_user_dir_is_the_package(capsys):
    cli.main(["user-dir"])
    assert Path(capsys.readouterr().out.strip()) == Path(cli.__file__).parent


def test_user_dir_does_not_load_torch():
    code = "import sys; from relumt.cli import main; main(['user-dir']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


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


def test_ctrl_c_exits_with_status_130(monkeypatch):
    assert exit_status_after(KeyboardInterrupt(), monkeypatch) == 130
