"""Score sentence pairs by the null rate of cross-attention ([RL] section 5.2, "Is null attention meaningful?").

The null rate of a pair is the share of null rows in cross-attention, averaged over target positions, heads and layers.
The model's cross-entropy per token, the usual criterion for filtering, is computed as well. Pairs are read as a stream,
so a corpus can have any size.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput
from relumt.inference.batching import batches_by_length
from relumt.inference.loaded_model import LoadedModel, TokenPair
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook

BUFFER_SIZE = 10_000
"""Number of pairs that are read at once and batched by length."""


@dataclass(frozen=True)
class PairScore:
    """Scores of a sentence pair; both None if it exceeds the model's maximum positions.

    Attributes:
        null_rate: null rate of cross-attention, 0 to 1; None for a mechanism without row statistics.
        cross_entropy: nats per target token, including the end-of-sentence symbol.
    """

    null_rate: float | None
    cross_entropy: float | None


def score_pairs(loaded: LoadedModel, pairs: Iterable[TokenPair], max_tokens: int) -> Iterator[PairScore]:
    """Score a stream of sentence pairs, and yield the scores in order.

    Args:
        loaded: the model.
        pairs: source and target of each pair.
        max_tokens: limit for the padded size of a batch's longer side.
    """
    stream = iter(pairs)
    max_source, max_target = loaded.model.max_positions()
    while block := list(islice(stream, BUFFER_SIZE)):
        fitting = [i for i, (s, t) in enumerate(block) if len(s) <= max_source and len(t) <= max_target]
        scores: dict[int, PairScore] = {}
        lengths = [max(map(len, block[i])) for i in fitting]
        for positions in batches_by_length(lengths, max_tokens=max_tokens):
            batch = [fitting[position] for position in positions]
            scores.update(zip(batch, score_batch(loaded, [block[i] for i in batch]), strict=True))
        yield from (scores.get(i, PairScore(None, None)) for i in range(len(block)))


@torch.no_grad()
def score_batch(loaded: LoadedModel, pairs: Sequence[TokenPair]) -> list[PairScore]:
    """Score pairs in one batch, and return the scores in order."""
    sources, targets = zip(*pairs, strict=True)
    sample = loaded.collate(sources, targets)
    is_real = sample["target"].ne(loaded.task.target_dictionary.pad())
    num_tokens = is_real.sum(-1)
    layer_rates: list[Tensor] = []

    def add(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross" and result.row_stats is not None:
            null_rate = result.row_stats.is_null.float().mean(1)  # [B, H, T] -> [B, T]
            layer_rates.append((null_rate * is_real).sum(-1) / num_tokens)

    with attention_hook(loaded.model, add):
        log_p = loaded.target_log_probs(sample)
    cross_entropies = (-(log_p * is_real).sum(-1) / num_tokens).tolist()
    null_rates = torch.stack(layer_rates).mean(0).tolist() if layer_rates else [None] * len(cross_entropies)
    scores = dict(zip(sample["id"].tolist(), map(PairScore, null_rates, cross_entropies), strict=True))
    return [scores[i] for i in range(len(pairs))]
