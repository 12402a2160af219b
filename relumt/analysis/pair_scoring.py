"""Sentence pairs ranked by how little of the target attends to the source ([RL] §5.2, "Is null attention meaningful?").

The null rate of a pair is the share of null rows in cross-attention, mean over target positions, heads and layers.
Beside it stands the model's own cross-entropy a token, the usual filter. Texts are read as a stream, of any size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from relumt.analysis.loaded_model import LoadedModel
from relumt.attention import AttentionMask, AttentionOutput
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook

SORTED_AT_ONCE = 10_000
"""Pairs that are read ahead and batched by length."""


@dataclass(frozen=True)
class Score:
    """Of a sentence pair; both None if it is longer than the model's positions.

    Attributes:
        null_rate: of cross-attention, 0 to 1; None, too, for a model whose attention has no statistics.
        cross_entropy: nats a target token, the end of the sentence included.
    """

    null_rate: float | None
    cross_entropy: float | None

    def rank(self, by: str) -> tuple[float, float] | None:
        """What to order pairs by: the measure, and among equals the cross-entropy; None without them."""
        return None if self.cross_entropy is None else (getattr(self, by), self.cross_entropy)


def scored(opened: LoadedModel, pairs: Iterable[tuple[Tensor, Tensor]], max_tokens: int) -> Iterator[Score]:
    """Score a stream of pairs of token sequences, each with its end, in order.

    Args:
        opened: the model.
        pairs: source and target.
        max_tokens: of a batch's longer side, padding included.
    """
    stream = iter(pairs)
    while block := list(islice(stream, SORTED_AT_ONCE)):
        scores: dict[int, Score] = {}
        for batch in batches(block, max_tokens, opened.model.max_positions()):
            scores.update(zip(batch, score_batch(opened, [block[number] for number in batch]), strict=True))
        yield from (scores.get(number, Score(None, None)) for number in range(len(block)))


def batches(block: list[tuple[Tensor, Tensor]], max_tokens: int, positions: tuple[int, int]) -> Iterator[list[int]]:
    """Numbers of the pairs that fit the positions, by length, as many together as `max_tokens` holds, one at least."""
    lengths = [max(len(source), len(target)) for source, target in block]
    fitting = [n for n, (s, t) in enumerate(block) if len(s) <= positions[0] and len(t) <= positions[1]]
    batch: list[int] = []
    for number in sorted(fitting, key=lengths.__getitem__):
        if batch and lengths[number] * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@torch.no_grad()
def score_batch(opened: LoadedModel, pairs: list[tuple[Tensor, Tensor]]) -> list[Score]:
    """Score pairs together, in order."""
    sample = opened.batch_of(*zip(*pairs, strict=True))
    real = sample["target"].ne(opened.task.target_dictionary.pad())
    rates: list[Tensor] = []

    def listen(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross" and result.row_stats is not None:
            of_positions = result.row_stats.is_null.float().mean(1)
            rates.append((of_positions * real).sum(-1) / real.sum(-1))

    with attention_hook(opened.model, listen):
        log_p = opened.log_probabilities(sample)
    entropies = (-(log_p * real).sum(-1) / real.sum(-1)).tolist()
    nulls = torch.stack(rates).mean(0).tolist() if rates else [None] * len(entropies)
    by_number = {
        number: Score(null, entropy)
        for number, null, entropy in zip(sample["id"].tolist(), nulls, entropies, strict=True)
    }
    return [by_number[number] for number in range(len(pairs))]
