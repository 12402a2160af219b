import pytest

from relumt.runs.training_log import read_training_log
from tests.runs.cases import DONE

STARTED = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 1,234,567 (num. trained: 1,234,567)
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. expert model params: 0 (num. trained: 0)
2026-01-01 10:00:01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)
"""
INTERVALS = """\
2026-01-01 10:00:05 | INFO | train_inner | {"epoch": 1, "update": 0.4, "wps": "900", "wall": "4", "num_updates": "2"}
2026-01-01 10:00:06 | INFO | train_inner | {"epoch": 1, "update": 0.8, "wps": "1000.5", "train_wall": "1", "wall": "5"}
2026-01-01 10:00:09 | INFO | train_inner | {"epoch": 1, "update": 1.0, "wps": "20", "wall": "8", "num_updates": "6"}
UserWarning: a line without a stamp
"""
EPOCH = """\
2026-01-01 10:00:11 | INFO | valid | {"epoch": 1, "valid_loss": "8.5", "valid_num_updates": "6"}
2026-01-01 10:00:11 | INFO | train | {"epoch": 1, "train_wps": "640.2", "train_wall": "10", "train_num_updates": "6"}
"""
RESUMED = """\
2026-01-01 12:00:00 | INFO | fairseq_cli.train | {'_name': None}
2026-01-01 12:00:04 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)
2026-01-01 12:00:20 | INFO | valid | {"epoch": 2, "valid_loss": "8.7", "valid_best_loss": "8.5"}
2026-01-01 12:00:24 | INFO | train | {"epoch": 2, "train_wps": "650", "train_wall": "20", "train_num_updates": "12"}
"""


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a log with a text."""

    def read_log(text):
        (tmp_path / "train.log").write_text(text)
        return read_training_log(tmp_path / "train.log")

    return read_log


VALID = '2026-01-01 12:00:20 | INFO | valid | {"epoch": 2, "valid_loss": "8.1", "valid_num_updates": "9"}\n'


@pytest.mark.parametrize(
    ("text", "speed", "progress", "wall"),
    [
        (INTERVALS + EPOCH, 900, (6, 1, 8.5), 10),  # the median speed: one slow interval does not count
        (INTERVALS + EPOCH + RESUMED, 900, (12, 2, 8.5), 10 + 20),  # without the pause
        (INTERVALS + RESUMED, 900, (12, 2, 8.7), 8 + 20),  # a killed start counts
        (EPOCH, 640.2, (6, 1, 8.5), 10),  # shorter than an interval
        (INTERVALS + EPOCH + VALID, 900, (9, 2, 8.1), 10),  # the end of the second epoch was not logged
        (INTERVALS + VALID, 900, (9, 2, 8.1), 8),
    ],
)
def test_a_log_is_summarized(read, text, speed, progress, wall):
    log = read(STARTED + text).summary
    assert (log.parameters, log.tokens_per_second, log.wall_seconds) == (1234567, speed, wall)
    assert (log.updates, log.epochs, log.best_valid_loss) == progress


def test_a_log_without_a_finished_epoch_or_validation_has_no_summary(read, tmp_path):
    assert read(STARTED + INTERVALS) == read_training_log(tmp_path / "missing.log") == read("")
    assert read("").summary is None


WORKERS = """\
FloatingPointError: Fatal error: gradients are inconsistent between workers. Try --ddp-backend=legacy_ddp.
--------
grad_norm across the workers:
rank   0 = {}
rank   1 = 0.52000000

--------
"""


def test_inconsistent_gradients_are_divergence_only_if_a_norm_is_not_finite(read):
    assert read(STARTED + WORKERS.format("0.51000000")).divergence is None
    diverged = read(STARTED + INTERVALS + WORKERS.format("nan")).divergence
    assert diverged.reason.startswith("Fatal error: gradients are inconsistent") and diverged.update == 6
    assert read(STARTED + WORKERS.format("nan") + "$ fairseq-train data\n" + STARTED).divergence is None


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (STARTED + DONE, True),
        (STARTED + DONE + "a warning\n", True),
        (STARTED + DONE + "$ fairseq-train data\n", False),
        (f"--restore-file '{DONE}", False),
    ],
)
def test_training_has_finished_if_the_last_start_came_to_its_end(read, text, finished):
    assert read(text).has_finished == finished
