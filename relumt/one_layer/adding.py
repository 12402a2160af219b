"""The adding problem (Hochreiter and Schmidhuber 1997): add the two marked numbers of a sequence."""

import torch

from relumt.one_layer.examples import Examples, Splits
from relumt.one_layer.settings import TaskSettings

TRAIN_SEED, VALID_SEED, TEST_SEED = 1, 2, 3


def load(settings: TaskSettings) -> Splits:
    """Draw the examples: the same in every repetition, so that repetitions differ by the training alone.

    Raises:
        ValueError: the settings leave the number of examples open.
    """
    if settings.num_train is None or settings.num_valid is None:
        raise ValueError("the adding problem needs num_train and num_valid")
    return Splits(
        draw(settings.num_train, settings.length, TRAIN_SEED),
        draw(settings.num_valid, settings.length, VALID_SEED),
        draw(settings.num_test, settings.length, TEST_SEED),
    )


def draw(num_examples: int, length: int, seed: int) -> Examples:
    """Draw sequences [N, length, 2] of a number in [0, 1) and a marker, and the sums [N] of the two marked numbers.

    One number of each half is marked. The sum has a variance of 1/6, the mean squared error of a constant answer.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(num_examples, length, generator=generator)
    half = length // 2
    markers = torch.zeros(num_examples, length)
    for start, end in ((0, half), (half, length)):
        markers.scatter_(1, torch.randint(start, end, (num_examples, 1), generator=generator), 1.0)
    return Examples(torch.stack([numbers, markers], dim=-1), (numbers * markers).sum(1))
