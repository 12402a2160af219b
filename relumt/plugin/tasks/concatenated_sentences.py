"""A dataset of one side of a bitext whose items are chunks of consecutive sentences."""

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from relumt.plugin.tasks.chunks import chunk_sizes


class ConcatenatedSentences(Dataset):
    """Concatenates the sentences of each chunk into a 1-D tensor of token indices with one end of sentence.

    Args:
        sentences: fairseq's dataset of one side, whose items end in `eos`.
        sizes: number of tokens of each sentence.
        starts: index of the first sentence of each chunk.
        eos: index of the end-of-sentence token.
        separator: index of the token between two sentences, or None.
    """

    def __init__(
        self, sentences: Dataset, sizes: np.ndarray, starts: np.ndarray, eos: int, separator: int | None
    ) -> None:
        self.sentences = sentences
        self.bounds = np.append(starts, len(sizes))
        self.sizes = chunk_sizes(starts, sizes, separator is not None)
        self.eos = torch.tensor([eos])
        self.separator = torch.tensor([] if separator is None else [separator], dtype=torch.long)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Tensor:
        tokens = []
        for sentence in range(self.bounds[index], self.bounds[index + 1]):
            tokens += [self.sentences[sentence][:-1], self.separator]
        return torch.cat([*tokens[:-1], self.eos])
