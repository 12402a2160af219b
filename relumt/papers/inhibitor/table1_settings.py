"""How each task of [IN] Table 1 is trained in each preset, in numbers of examples, tokens, epochs and dimensions.

Decisions that the paper leaves open: docs/results/inhibitor_table1.md.
"""

from dataclasses import dataclass, replace

TASKS = ("adding", "mnist", "imdb", "iam")
MECHANISMS = ("softmax", "inhibitor")
"""The two rows of [IN] Table 1; softmax is its "dot product"."""


@dataclass(frozen=True)
class TaskSettings:
    """Sizes and recipe of one task, equal for both mechanisms.

    Attributes:
        num_train: training examples, None for all of them.
        num_valid: validation examples: a part of the training data, or of IAM's validation words (None: all of them).
        num_test: test examples of the adding problem; other data has its own test set, which is used completely.
        length: tokens of an example; rows of an image (MNIST) or columns of its feature map (IAM) are tokens.
        max_symbols: size of the vocabulary (IMDB) with padding and unknown words, 0 where there are no words.
        epochs, batch_size: length and batch size of training.
        learning_rates: candidates for the peak learning rate; each mechanism takes the best on the validation set.
        embed_dim, num_heads, feed_forward_dim, dropout: sizes and dropout of the layer.
        initial_distance: of the Inhibitor's `init_projections`; 2 is its default, with which some trainings on the
            adding problem stay at the constant answer.
    """

    num_train: int | None
    num_valid: int | None
    num_test: int
    length: int
    epochs: int
    batch_size: int
    learning_rates: tuple[float, ...]
    embed_dim: int
    num_heads: int
    feed_forward_dim: int
    dropout: float
    max_symbols: int = 0
    initial_distance: float = 2.0


@dataclass(frozen=True)
class TaskPlan:
    """The settings of a task in a preset, and how many seeds are trained with each mechanism."""

    settings: TaskSettings
    repetitions: int


ADDING = TaskSettings(50_000, 5_000, 10_000, 100, 20, 64, (3e-4, 1e-3, 3e-3), 32, 2, 64, 0.0, initial_distance=1.0)
MNIST = TaskSettings(None, 5_000, 0, 28, 20, 64, (3e-4, 1e-3, 3e-3), 64, 4, 128, 0.1)
IMDB = TaskSettings(None, 2_500, 0, 200, 4, 32, (3e-4, 1e-3, 3e-3), 32, 2, 32, 0.1, max_symbols=20_000)
IAM = TaskSettings(None, None, 0, 32, 30, 64, (3e-4, 1e-3, 3e-3), 64, 4, 128, 0.2)

SMALL_RATES = (1e-3, 3e-3)


def smoke(settings: TaskSettings, length: int, max_symbols: int = 0) -> TaskPlan:
    """Return a plan that takes seconds on generated data."""
    few = replace(settings, num_train=256, num_valid=64, num_test=64, epochs=1, learning_rates=SMALL_RATES)
    return TaskPlan(replace(few, length=length, max_symbols=max_symbols), 2)


PRESETS: dict[str, dict[str, TaskPlan]] = {
    "paper": {task: TaskPlan(settings, 20) for task, settings in zip(TASKS, (ADDING, MNIST, IMDB, IAM), strict=True)},
    "small": {
        "adding": TaskPlan(
            replace(ADDING, num_train=6_400, num_valid=1_000, num_test=5_000, epochs=6, learning_rates=SMALL_RATES), 20
        ),
        "mnist": TaskPlan(replace(MNIST, num_train=20_000, epochs=6, learning_rates=SMALL_RATES), 5),
        "imdb": TaskPlan(replace(IMDB, epochs=2, learning_rates=SMALL_RATES), 5),
        "iam": TaskPlan(replace(IAM, num_train=8_000, epochs=5, learning_rates=SMALL_RATES), 5),
    },
    "smoke": {
        "adding": smoke(ADDING, 10),
        "mnist": smoke(MNIST, 28),
        "imdb": smoke(IMDB, 20, max_symbols=100),
        "iam": smoke(IAM, 32),
    },
}
"""Preset -> task -> plan."""
