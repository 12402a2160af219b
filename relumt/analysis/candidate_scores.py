"""Log-probabilities of given translations, in the context of the sentences before them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from relumt.errors import AttemptFailedError, UserError
from relumt.inference.batching import batches_by_length
from relumt.inference.loaded_model import LoadedModel


@dataclass(frozen=True)
class Candidate:
    """A translation to score.

    Attributes:
        source: token indices of the source chunk.
        target: token indices of the context's references, the translation and the end-of-sentence symbol.
        start: position of the translation in `target`.
    """

    source: Tensor
    target: Tensor
    start: int


def require_fitting(candidate: Candidate, loaded: LoadedModel, what: str) -> None:
    """Raise UserError unless the model can read a candidate; `what` begins the message."""
    max_source, max_target = loaded.max_positions
    if len(candidate.source) > max_source or len(candidate.target) > max_target:
        raise UserError(
            f"{what} exceeds the model's maximum length ({max_source} source and {max_target} target tokens); leave "
            "out its examples"
        )


@torch.no_grad()
def score_candidates(loaded: LoadedModel, candidates: Sequence[Candidate], batch_size: int) -> list[float]:
    """Return the log-probability of every translation, without the end-of-sentence symbol, given its context.

    Raises:
        AttemptFailedError: a probability is NaN, so the model cannot be used.
    """
    scores: dict[int, float] = {}
    for indices in batches_by_length([len(candidate.target) for candidate in candidates], batch_size):
        scores.update(zip(indices, _score_batch(loaded, [candidates[i] for i in indices]), strict=True))
    if not all(map(math.isfinite, scores.values())):
        raise AttemptFailedError(f"{loaded.path}: probabilities are not numbers; use another model")
    return [scores[i] for i in range(len(candidates))]


def _score_batch(loaded: LoadedModel, candidates: Sequence[Candidate]) -> list[float]:
    sample = loaded.collate([c.source for c in candidates], [c.target for c in candidates])
    log_probs = loaded.target_log_probs(sample).double()
    scores = {
        index: row[candidates[index].start : len(candidates[index].target) - 1].sum().item()
        for index, row in zip(sample["id"].tolist(), log_probs, strict=True)
    }
    return [scores[i] for i in range(len(candidates))]


def decide(scores: Iterable[float], num_variants: Iterable[int]) -> Iterator[bool]:
    """Yield for each example whether its first variant, the reference, is more probable than every other one.

    Args:
        scores: scores of all variants of all examples, in order.
        num_variants: how many variants each example has.
    """
    remaining = iter(scores)
    for count in num_variants:
        reference, *wrong = islice(remaining, count)
        yield reference > max(wrong)
