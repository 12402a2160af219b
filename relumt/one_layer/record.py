"""The files of a folder of results, and their format.

FOLDER/TASK/settings.json              what all trainings of the task have in common
FOLDER/TASK/MECHANISM/rate-RATE.json   a training that only serves to choose the learning rate
FOLDER/TASK/MECHANISM/seed-SEED.json   a repetition
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.json_files import encode_json, read_json
from relumt.one_layer.settings import TaskSettings

ADVICE = "delete it to train again"
SETTINGS_ADVICE = "choose another folder with --out"


@dataclass(frozen=True)
class CommonSettings:
    """What all trainings of a task have in common.

    Attributes:
        settings: sizes and recipe.
        data: name of each file -> SHA-256.
    """

    settings: TaskSettings
    data: dict[str, str]


@dataclass(frozen=True)
class Training:
    """A finished training.

    Attributes:
        task, mechanism, learning_rate, seed: what was trained.
        validation: scores of the validation set after each epoch, metric -> value.
        best_epoch: the epoch with the best validation score, whose weights were kept; counted from 1.
        test: scores of the test set, metric -> value; None if the training only served to choose a learning rate.
        num_parameters: number of parameters of the model.
        cpu_seconds: CPU time of training and validation.
        finished: time in ISO 8601, UTC.
        revision: commit of relumt, and its hash of uncommitted changes, "" for none.
        versions: package -> version.
    """

    task: str
    mechanism: str
    learning_rate: float
    seed: int
    validation: list[dict[str, float]]
    best_epoch: int
    test: dict[str, float] | None
    num_parameters: int
    cpu_seconds: float
    finished: str
    revision: str
    versions: dict[str, str]

    @property
    def best_validation(self) -> dict[str, float]:
        """Scores of the best epoch."""
        return self.validation[self.best_epoch - 1]


def rate_path(folder: Path, task: str, mechanism: str, rate: float) -> Path:
    """Return the path of a training that serves to choose the learning rate."""
    return folder / task / mechanism / f"rate-{rate:g}.json"


def seed_path(folder: Path, task: str, mechanism: str, seed: int) -> Path:
    """Return the path of a repetition."""
    return folder / task / mechanism / f"seed-{seed}.json"


def write(path: Path, content: Training | CommonSettings) -> None:
    """Write a file of the folder, completely or not at all."""
    write_text_atomically(path, encode_json(content))


def read_training(path: Path) -> Training | None:
    """Read a training; None if there is none. Raises UserError if the file is damaged or of another training."""
    try:
        training = read_json(path, Training, ADVICE)
    except FileNotFoundError:
        return None
    folder, task, mechanism = path.parents[2], training.task, training.mechanism
    own_paths = (
        rate_path(folder, task, mechanism, training.learning_rate),
        seed_path(folder, task, mechanism, training.seed),
    )
    if path not in own_paths:
        raise UserError(f"{path}: found the training of {own_paths[training.test is not None]}; {ADVICE}")
    return training


def read_repetitions(folder: Path, task: str, mechanism: str) -> dict[int, Training]:
    """Read the finished repetitions, by seed."""
    found = [read_training(path) for path in sorted((folder / task / mechanism).glob("seed-*.json"))]
    return {training.seed: training for training in found if training and training.test}


def settings_path(folder: Path, task: str) -> Path:
    """Return the path of what all trainings of a task have in common."""
    return folder / task / "settings.json"


def read_settings(folder: Path, task: str) -> CommonSettings | None:
    """Read what all trainings of a task have in common; None if there are none."""
    try:
        return read_json(settings_path(folder, task), CommonSettings, SETTINGS_ADVICE)
    except FileNotFoundError:
        return None


def require_settings(folder: Path, task: str, settings: TaskSettings) -> None:
    """Raise UserError if the folder holds trainings with other settings."""
    recorded = read_settings(folder, task)
    if recorded is None:
        return
    now = asdict(settings)
    changed = [f"{name} {old} (now {now[name]})" for name, old in asdict(recorded.settings).items() if old != now[name]]
    if changed:
        raise UserError(f"{folder / task} was created with different settings: {', '.join(changed)}; {SETTINGS_ADVICE}")


def require_data(folder: Path, task: str, data: dict[str, str]) -> None:
    """Raise UserError if the folder holds trainings on other data."""
    recorded = read_settings(folder, task)
    if recorded is not None and recorded.data != data:
        names = sorted(name for name in recorded.data | data if recorded.data.get(name) != data.get(name))
        raise UserError(f"{folder / task} was created with other data: {', '.join(names)} differ; {SETTINGS_ADVICE}")
