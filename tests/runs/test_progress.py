"""What a user sees of fairseq-train while it runs."""

import io
import sys

import pytest

from relumt.errors import duration
from relumt.runs import progress
from relumt.runs.progress import follow

STAMP = "2026-01-01 10:00:00 | INFO | "
INTERVAL = STAMP + 'train_inner | {"epoch": %d, "update": %.2f, "loss": "7.5", "wps": "5400.1", "num_updates": "%d"}\n'
VALID = STAMP + 'valid | {"epoch": %d, "valid_loss": "6.5", "valid_bleu": "12.34", "valid_num_updates": "%d"}\n'
EPOCH = STAMP + 'train | {"epoch": %d, "train_loss": "7.25", "train_wps": "5000", "train_num_updates": "%d"}\n'
START = f"""
$ fairseq-train data --max-epoch 4
{STAMP}fairseq_cli.train | {{'_name': None, 'common': {{}}}}
{STAMP}fairseq_cli.train | num. shared model params: 1,234,567 (num. trained: 1,234,567)
2026-01-01 10:00:00 | WARNING | fairseq.trainer | something is odd
relumt: checkpoint_last.pt is damaged; resuming from another
"""


def shown(capsys, *parts, is_verbose=False):
    """Return what is printed for the parts of an output."""
    with follow(["data", "--max-epoch", "4"], is_verbose) as show:
        for part in parts:
            show(part)
    return capsys.readouterr().out


def test_one_line_is_printed_for_an_epoch_and_messages_are_passed_on(capsys):
    epochs = [INTERVAL % (n, n - 0.5, 50 * n) + VALID % (n, 100 * n) + EPOCH % (n, 100 * n) for n in (1, 2)]
    start, size, warning, message, first, second = shown(capsys, START, *epochs).strip().split("\n")
    assert (start, size) == ("$ fairseq-train data --max-epoch 4", "1,234,567 parameters")
    assert "something is odd" in warning and message.startswith("relumt: checkpoint_last.pt is damaged")
    for number, line in enumerate((first, second), start=1):
        start = (
            f"epoch {number} of 4, update {number}00, loss 7.500, validation loss 6.500, BLEU 12.34, 5,400 tokens/s,"
        )
        assert line.startswith(start) and line.endswith(" s left")


def test_an_epoch_without_intervals_shows_the_loss_of_the_epoch(capsys):
    epochs = (VALID % (1, 10), EPOCH % (1, 10), VALID % (2, 20), EPOCH.replace("7.25", "6.75") % (2, 20))
    first, second = shown(capsys, *epochs).strip().split("\n")
    assert first == "epoch 1 of 4, update 10, loss 7.250, validation loss 6.500, BLEU 12.34, 5,000 tokens/s"
    assert second.startswith("epoch 2 of 4, update 20, loss 6.750, validation loss 6.500, BLEU 12.34, ")


def test_without_validation_the_epoch_is_shown(capsys):
    assert shown(capsys, EPOCH % (1, 10)) == "epoch 1 of 4, update 10, loss 7.250, 5,000 tokens/s\n"


def test_sample_translations_are_shown_without_their_stamps(capsys):
    samples = ("relumt.plugin.tasks.samples | translation 1: a man", "fairseq.tasks.translation | example reference: b")
    printed = shown(capsys, *(f"{STAMP}{sample}\n" for sample in samples), f"{STAMP}fairseq.tasks.other | x y: z\n")
    assert printed == "  translation 1: a man\n  example reference: b\n"


def test_parts_may_end_anywhere(capsys):
    text = START + VALID % (1, 10) + EPOCH % (1, 10)
    assert shown(capsys, *text) == shown(capsys, text)


def test_a_long_epoch_shows_where_it_is(capsys, monkeypatch):
    parts = [INTERVAL % (1, 0.1 * n, 10 * n) for n in (1, 2, 3)]
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    assert 0 < shown(capsys, *parts).count("epoch 1 of 4, update ") < 3


def test_the_time_left_follows_from_what_was_done_since_the_start(monkeypatch):
    resumed = progress.TrainingProgress(max_epoch=4, max_update=0, started=1000.0)
    resumed.read("train_inner", {"update": 2.0})
    assert resumed.seconds_left() is None
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1100.0)
    resumed.read("train_inner", {"update": 3.5})
    assert round(resumed.seconds_left()) == 33  # 1.5 epochs took 100 s, and 0.5 are left


def test_after_the_last_epoch_no_time_is_left(monkeypatch):
    clock = iter([0.0, 100.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    training = progress.TrainingProgress(max_epoch=4, max_update=0)
    for number in (100, 200, 350):
        training.read("train_inner", {"epoch": 1 + number // 100, "update": number / 100, "num_updates": number})
    training.read("valid", {"epoch": 4, "valid_loss": 6.5, "valid_num_updates": 400})
    assert training.share == 1.0 and str(training) == "epoch 4 of 4, update 400, validation loss 6.500"


def test_verbose_shows_everything(capsys):
    assert shown(capsys, START, "no newline", is_verbose=True) == START + "no newline"


def test_a_terminal_shows_one_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with follow(["--max-update", "100"], is_verbose=False) as show:
        show(START + INTERVAL % (1, 0.5, 50))
    printed = terminal.getvalue()
    assert "1,234,567 parameters" in printed and "epoch 1, update 50 of 100, loss 7.500" in printed


@pytest.mark.parametrize(
    ("seconds", "words"), [(5.4, "5 s"), (89, "89 s"), (100, "2 min"), (3540, "59 min"), (3900, "1 h 05 min")]
)
def test_durations_are_words(seconds, words):
    assert duration(seconds) == words
