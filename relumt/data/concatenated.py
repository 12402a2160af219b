"""One side of a bitext, a chunk of consecutive sentences an item."""

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from relumt.data.chunks import chunk_sizes


class ConcatenatedSentences(Dataset):
    """Items are 1-D tensors of tokens: sentences without their end, `separator` between them, one end at last.

    Args:
        sentences: fairseq's dataset of one side, each item ending in `eos`.
        sizes: tokens of each sentence.
        starts: the sentence at which each chunk begins.
        eos: index of the end of a sentence.
        separator: index of the token between two sentences, or None.
    """

    def __init__(
        self, sentences: Dataset, sizes: np.ndarray, starts: np.ndarray, eos: int, separator: int | None
    ) -> None:
        self.sentences = sentences
        self.bounds = np.append(starts, len(sizes))
        self.sizes = chunk_sizes(starts, sizes, separator is not None)
        self.end = torch.tensor([eos])
        self.between = torch.tensor([] if separator is None else [separator], dtype=torch.long)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Tensor:
        parts = []
        for number in range(self.bounds[index], self.bounds[index + 1]):
            parts += [self.sentences[number][:-1], self.between]
        return torch.cat([*parts[:-1], self.end])
