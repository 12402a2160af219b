"""Plots of tables are not drawn, which takes seconds, unless a test calls `monkeypatch.undo()`."""

import pytest

from relumt.analysis import plots


@pytest.fixture(autouse=True)
def fast_plots(monkeypatch):
    """Let figures write empty files."""

    def save(figure, out, name):
        out.mkdir(exist_ok=True)
        for extension in plots.PLOT_FORMATS:
            (out / f"{name}.{extension}").touch()

    monkeypatch.setattr(plots, "save_figure", save)


@pytest.fixture
def run_command(capfd):
    """Return a function that calls a command's `main` with arguments, and returns its exit status and output."""

    def run(main, *arguments):
        status = 0
        try:
            main(list(map(str, arguments)))
        except SystemExit as ended:
            status = ended.code
        return status, capfd.readouterr()

    return run
