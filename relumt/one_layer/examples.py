"""What every task trains and tests on: tensors in memory, split into training, validation and test examples."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Examples:
    """Inputs and targets; the first dimension of both counts examples."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, size: int, generator: torch.Generator | None = None) -> "Iterator[Examples]":
        """Yield batches of at most `size` examples; in random order if there is a generator."""
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        for chosen in order.split(size):
            yield self[chosen]

    def __getitem__(self, chosen: Tensor) -> "Examples":
        return Examples(self.inputs[chosen], self.targets[chosen])


@dataclass(frozen=True)
class Splits:
    """The examples of a task.

    Attributes:
        train, valid, test: disjoint, except that IMDB repeats 123 training reviews in its test set.
        num_symbols: size of the vocabulary of inputs (IMDB) or of the alphabet of targets (IAM), with the reserved 0.
        data: name of each file that was read -> its SHA-256; empty for data drawn from a fixed seed.
    """

    train: Examples
    valid: Examples
    test: Examples
    num_symbols: int = 0
    data: dict[str, str] = field(default_factory=dict)


SPLIT_SEED = 20231003
"""Draws which examples are kept and which of them are for validation: the same in every repetition."""


def split_off_validation(examples: Examples, num_train: int | None, num_valid: int) -> tuple[Examples, Examples]:
    """Draw `num_train` training examples (None: all that remain) and `num_valid` validation examples."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(SPLIT_SEED))
    end = None if num_train is None else num_valid + num_train
    return examples[order[num_valid:end]], examples[order[:num_valid]]
