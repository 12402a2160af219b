"""Contrastive evaluation of examples with contexts of their own, such as ContraPro's.

The text of an example is plain and is prepared like the model's training text. A model trained with --document-length
reads as many of the sentences before it as fit into a chunk; any other model reads the sentence alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from relumt.analysis.candidate_scores import Candidate, decide, require_fitting, score_candidates
from relumt.corpora.contrastive import ExampleInContext
from relumt.inference.loaded_model import LoadedModel
from relumt.inference.text_encoding import TextEncoding, load_encoding

MAX_DISTANCE = 3
"""Larger distances are counted together, as in ContraPro's script."""


@dataclass(frozen=True)
class Side:
    """How one side of a chunk is made.

    Attributes:
        encoding: prepares text of this side's language.
        separator: token between two sentences, of length 1 or, without separators, 0.
    """

    encoding: TextEncoding
    separator: Tensor

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """Return the token indices of each text, with the end-of-sentence symbol."""
        return self.encoding.encode(texts) if texts else []

    def concatenate(self, sentences: Sequence[Tensor]) -> Tensor:
        """Return sentences as one chunk with one end-of-sentence symbol."""
        tokens = [part for sentence in sentences[:-1] for part in (sentence[:-1], self.separator)]
        return torch.cat([*tokens, sentences[-1]])

    def length(self, sentences: Sequence[Tensor]) -> int:
        """Return the number of tokens of a chunk."""
        return sum(map(len, sentences)) + (len(self.separator) - 1) * (len(sentences) - 1)


class ContextTest:
    """Scores examples in their contexts with a model.

    Args:
        loaded: the model; its task determines how much context it reads.
        data: the data-bin, which says how text is prepared.
        examples: what to score.
    """

    def __init__(self, loaded: LoadedModel, data: Path, examples: Sequence[ExampleInContext]) -> None:
        self.loaded = loaded
        self.examples = examples
        self.limit = getattr(loaded.task.cfg, "document_length", 0)
        encoding = load_encoding(data, loaded.task, False)
        target_as_source = replace(encoding.data_bin, source=encoding.data_bin.target)
        self.source = Side(encoding, self.separator(encoding.source))
        self.target = Side(
            replace(encoding, data_bin=target_as_source, source=encoding.target), self.separator(encoding.target)
        )
        self.context_lengths: list[int] = []

    def separator(self, dictionary: object) -> Tensor:
        """Return the token between two sentences of a chunk in a tensor, which is empty if there is none."""
        index = self.loaded.task.separator_index(dictionary) if self.limit else None
        return torch.tensor([] if index is None else [index], dtype=torch.long)

    def candidates(self) -> Iterator[Candidate]:
        """Yield each variant of each example with its context; raise UserError for one that the model cannot read."""
        for number, example in enumerate(self.examples, start=1):
            source = self.source.encode([*example.source_context, example.source])
            context = self.target.encode(example.target_context)
            variants = self.target.encode(example.variants)
            first = self.first_sentence(source, context, max(variants, key=len))
            self.context_lengths.append(len(context) - first)
            chunk = self.source.concatenate(source[first:])
            for variant in variants:
                target = self.target.concatenate([*context[first:], variant])
                candidate = Candidate(chunk, target, len(target) - len(variant))
                require_fitting(candidate, self.loaded, f"example {number}")
                yield candidate

    def first_sentence(self, source: Sequence[Tensor], context: Sequence[Tensor], variant: Tensor) -> int:
        """Return the index of the first sentence of the context with which a chunk is within the limit."""
        for first in range(len(context) if self.limit else 0):
            sizes = self.source.length(source[first:]), self.target.length([*context[first:], variant])
            if max(sizes) <= self.limit:
                return first
        return len(context)

    def decisions(self, batch_size: int) -> list[bool]:
        """Return for each example whether its reference is more probable than every wrong variant."""
        self.context_lengths.clear()
        scores = score_candidates(self.loaded, list(self.candidates()), batch_size)
        return list(decide(scores, (len(example.variants) for example in self.examples)))


def accuracies(examples: Sequence[ExampleInContext], decisions: Sequence[bool]) -> dict[str, object]:
    """Return the accuracy by distance to the antecedent, by category, and of blocks, as far as examples have them."""
    by_distance: dict[str, list[bool]] = defaultdict(list)
    by_category: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    by_block: dict[str, list[bool]] = defaultdict(list)
    for example, decision in zip(examples, decisions, strict=True):
        by_distance[describe_distance(example.distance)].append(decision)
        by_block[example.block].append(decision)
        for name, value in example.categories.items():
            by_category[name][value].append(decision)
    found: dict[str, object] = {}
    if set(by_distance) != {"unknown"}:
        found["accuracy_by_distance"] = shares(by_distance)
    if by_category:
        found["accuracy_by_category"] = {name: shares(groups) for name, groups in by_category.items()}
    if blocks := [all(group) for name, group in by_block.items() if name]:
        found["blocks"] = {"blocks": len(blocks), "all_correct": fmean(blocks)}
    return found


def describe_distance(distance: int | None) -> str:
    """Return the group of a distance: "0" to "3", ">3" or "unknown"."""
    if distance is None:
        return "unknown"
    return str(distance) if distance <= MAX_DISTANCE else f">{MAX_DISTANCE}"


def shares(groups: dict[str, list[bool]]) -> dict[str, dict[str, float]]:
    """Return the number of examples and the accuracy of each group, by name."""
    return {name: {"examples": len(groups[name]), "accuracy": fmean(groups[name])} for name in sorted(groups)}
