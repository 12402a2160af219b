"""Contrastive evaluation: is a reference translation more probable than wrong variants of it?

An example has a context of its own, as in ContraPro. The model reads a source chunk that ends with the sentence; its
decoder is fed the references of the earlier sentences of the chunk, then a translation. A model that reads single
sentences has no earlier ones.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from relumt.corpora.contrastive import ExampleInContext, FormExample
from relumt.errors import AttemptFailedError, UserError
from relumt.plugin.tasks.documents import concatenate
from relumt.runs.inference.loaded_model import LoadedModel
from relumt.runs.inference.search import SearchSettings, batches_by_length
from relumt.runs.inference.text_encoding import load_encoding
from relumt.runs.inference.translator import search_hypotheses

MAX_DISTANCE = 3
"""Larger distances are counted together, as in ContraPro's script."""


@dataclass(frozen=True)
class Candidate:
    """A translation to score.

    Attributes:
        source: token indices of the source chunk.
        target: token indices of the context's references, the translation and the end-of-sentence symbol.
        start: position of the translation in `target`.
        num_context: number of sentences before the translation.
        source_context: token indices of the source's sentences before the translated one, as a chunk; [0] for none.
    """

    source: Tensor
    target: Tensor
    start: int
    num_context: int
    source_context: Tensor


def _candidate(
    source: Tensor,
    context: tuple[Sequence[Tensor], Sequence[Tensor]],
    variant: Tensor,
    separators: tuple[Tensor, Tensor],
) -> Candidate:
    """Return a candidate after the sentences `context` of both sides."""
    target = concatenate([*context[1], variant], separators[1])
    source_context = concatenate(context[0], separators[0]) if context[0] else variant[:0]
    return Candidate(source, target, len(target) - len(variant), len(context[1]), source_context)


def after_own_context(
    loaded: LoadedModel, examples: Sequence[Sequence[Candidate]], search: SearchSettings, batch_size: int
) -> list[list[Candidate]]:
    """Return the candidates with the model's own translation of the context in place of the references.

    The context's sentences are translated as one chunk. If a translation leaves no room for the variant within the
    model's positions, its beginning is left out.
    """
    _, separator = loaded.separators
    found = search_hypotheses(loaded, [variants[0].source_context for variants in examples], search, batch_size)

    def replace_context(candidate: Candidate, own: Tensor) -> Candidate:
        variant = candidate.target[candidate.start :]
        room = loaded.max_positions[1] - len(variant) - len(separator)
        target = torch.cat([own[max(len(own) - 1 - room, 0) : -1], separator, variant])
        return replace(candidate, target=target, start=len(target) - len(variant))

    return [
        [replace_context(variant, hypotheses[0]["tokens"].cpu()) if hypotheses else variant for variant in variants]
        for variants, hypotheses in zip(examples, found, strict=True)
    ]


def context_candidates(
    loaded: LoadedModel, data: Path, examples: Sequence[ExampleInContext]
) -> Iterator[list[Candidate]]:
    """Yield the variants of each example in the context of its own, as far as it fits into a chunk.

    Args:
        loaded: the model; its task determines how much context it reads.
        data: the data-bin, which says how text is prepared.
        examples: what to score.
    """
    source_side = load_encoding(data, loaded.task, False)
    target_as_source = replace(source_side.data_bin, source=source_side.data_bin.target)
    target_side = replace(source_side, data_bin=target_as_source, source=source_side.target)
    separators = loaded.separators
    for example in examples:
        source = source_side.encode([*example.source_context, example.source])
        context, variants = target_side.encode(example.target_context), target_side.encode(example.variants)
        longest = max(variants, key=len)
        first = num_left_out(loaded, (source, separators[0]), ([*context, longest], separators[1]))
        chunk = concatenate(source[first:], separators[0])
        before = source[first:-1], context[first:]
        yield [_candidate(chunk, before, variant, separators) for variant in variants]


def num_left_out(loaded: LoadedModel, *sides: tuple[Sequence[Tensor], Tensor]) -> int:
    """Return how many sentences must be left out before the last one so that they fit into a chunk.

    Args:
        loaded: the model; all are left out if it reads single sentences.
        sides: the sentences and the separator of the source and, if it is known, the target.
    """
    limit, num_context = loaded.document_length, len(sides[0][0]) - 1
    for start in range(num_context if limit else 0):
        if all(len(concatenate(sentences[start:], separator)) <= limit for sentences, separator in sides):
            return start
    return num_context


@torch.no_grad()
def score_examples(loaded: LoadedModel, groups: Sequence[Sequence[Candidate]], batch_size: int) -> list[list[float]]:
    """Return the log-probability of every variant of each example, given its context, without the end of the sentence.

    Raises:
        UserError: the model cannot read a candidate.
        AttemptFailedError: a probability is NaN, so the model cannot be used.
    """
    max_source, max_target = loaded.max_positions
    for number, group in enumerate(groups, start=1):
        if any(len(one.source) > max_source or len(one.target) > max_target for one in group):
            raise UserError(
                f"example {number} exceeds the model's maximum length ({max_source} source and {max_target} target "
                "tokens); leave it out"
            )
    candidates = [candidate for group in groups for candidate in group]
    scores = [math.nan] * len(candidates)
    for indices in batches_by_length([len(candidate.target) for candidate in candidates], batch_size):
        batch = [candidates[index] for index in indices]
        sample = loaded.collate([one.source for one in batch], [one.target for one in batch])
        log_probs = loaded.target_log_probs(sample).double()
        for position, row in zip(sample["id"].tolist(), log_probs, strict=True):
            translation = row[batch[position].start : len(batch[position].target) - 1]
            scores[indices[position]] = translation.sum().item()
    if not all(map(math.isfinite, scores)):
        raise AttemptFailedError(f"{loaded.path}: probabilities are not numbers; use another model")
    remaining = iter(scores)
    return [[next(remaining) for _ in group] for group in groups]


def decide(loaded: LoadedModel, examples: Sequence[Sequence[Candidate]], batch_size: int) -> list[bool]:
    """Return for each example whether its first variant, the reference, is more probable than every other one."""
    return [reference > max(wrong) for reference, *wrong in score_examples(loaded, examples, batch_size)]


def summarize(examples: Sequence[ExampleInContext], decisions: Sequence[bool]) -> dict[str, Any]:
    """Return the number of examples, the accuracy and that of the majority baseline, which ignores the context."""
    majority = majority_accuracy(examples)
    return {"examples": len(decisions), "majority_accuracy": majority, "accuracy": fmean(decisions)}


def majority_accuracy(examples: Iterable[ExampleInContext]) -> float:
    """Return the accuracy of always choosing the variant that is most often correct, without context.

    Two examples share a choice if their variants differ in the same words. What is most often correct is counted on the
    same examples, so this is an upper bound. An example that shares its choice with no other is decided by chance.
    """
    correct: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for example in examples:
        words = [variant.split() for variant in example.variants]
        differing = [column for column in zip_longest(*words, fillvalue="") if len(set(column)) > 1]
        choices = [" ".join(column[i] for column in differing) for i in range(len(words))]
        correct[tuple(sorted(choices))][choices[0]] += 1
    decided = [max(counts.values()) if counts.total() > 1 else 1 / len(choices) for choices, counts in correct.items()]
    return sum(decided) / sum(map(Counter.total, correct.values()))


def accuracies(examples: Sequence[ExampleInContext | FormExample], decisions: Sequence[bool]) -> dict[str, Any]:
    """Return the accuracy by distance to the antecedent, by category, and of blocks, as far as examples have them."""
    by_distance: dict[str, list[bool]] = defaultdict(list)
    by_category: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    by_block: dict[str, list[bool]] = defaultdict(list)
    for example, decision in zip(examples, decisions, strict=True):
        by_distance[describe_distance(example.distance)].append(decision)
        by_block[example.block].append(decision)
        for name, value in example.categories.items():
            by_category[name][value].append(decision)
    found: dict[str, Any] = {}
    if set(by_distance) != {"unknown"}:
        found["accuracy_by_distance"] = _shares(by_distance)
    if by_category:
        found["accuracy_by_category"] = {name: _shares(groups) for name, groups in by_category.items()}
    if blocks := [all(group) for name, group in by_block.items() if name]:
        found["blocks"] = {"blocks": len(blocks), "all_correct": fmean(blocks)}
    return found


def describe_distance(distance: int | None) -> str:
    """Return the group of a distance: "0" to "3", ">3" or "unknown"."""
    if distance is None:
        return "unknown"
    return str(distance) if distance <= MAX_DISTANCE else f">{MAX_DISTANCE}"


def _shares(groups: dict[str, list[bool]]) -> dict[str, dict[str, float]]:
    """Return the number of examples and the accuracy of each group, by name."""
    return {name: {"examples": len(groups[name]), "accuracy": fmean(groups[name])} for name in sorted(groups)}
