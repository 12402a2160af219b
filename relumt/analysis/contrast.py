"""Does a model use the document? The score that it gives a reference against wrong variants of one sentence in it.

An example (a line of test.contrast.jsonl) is a sentence of a document, its translation and wrong ones; it counts as
right where the right translation is more probable than every wrong one. The model reads the source chunk that holds the
sentence and, before the translation, the references of the chunk's earlier sentences.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relumt.analysis.loaded_model import LoadedModel
from relumt.data.document_lengths import read_document_lengths
from relumt.errors import UserError
from relumt.prep.bpe import BPE_METHODS
from relumt.runs.data_bin import open_data_bin
from relumt.text_files import read_lines


@dataclass(frozen=True)
class Example:
    """One sentence with its variants.

    Attributes:
        sentence: its number in the test set.
        variants: translations, the right one first.
    """

    sentence: int
    variants: tuple[str, ...]


def read_examples(path: Path, documents: list[int]) -> list[Example]:
    """The examples of a file, for a test set with `documents` of so many sentences.

    Raises:
        UserError: no such file, or a line that is no example or of a sentence that is not there.
    """
    firsts = np.cumsum([0, *documents]).tolist()
    examples = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            document, sentence, variants = _parsed(line)
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}:{number}: no example; it needs document, sentence, target and wrong, as JSON"
            ) from None
        if not (0 <= document < len(documents) and 0 <= sentence < documents[document]):
            raise UserError(f"{path}:{number}: the data has no sentence {sentence} of document {document}")
        examples.append(Example(firsts[document] + sentence, variants))
    if not examples:
        raise UserError(f"{path}: no example in it; relumt synth writes some beside its test set")
    return examples


def _parsed(line: str) -> tuple[int, int, tuple[str, ...]]:
    """Document, sentence and variants; raises ValueError, KeyError or TypeError for anything else."""
    example = json.loads(line)
    document, sentence, wrong = example["document"], example["sentence"], example["wrong"]
    variants = (example["target"], *wrong)
    if not (isinstance(wrong, list) and wrong and all(isinstance(variant, str) for variant in variants)):
        raise TypeError("variants")
    return int(document), int(sentence), variants


def majority_rate(examples: Iterable[Example]) -> float:
    """What a reader of the sentence alone gets who always takes the word that is right most often.

    Sentences are alike if the same words tell their variants apart.
    """
    right: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for example in examples:
        words = [variant.split() for variant in example.variants]
        differing = [column for column in zip_longest(*words, fillvalue="") if len(set(column)) > 1]
        choices = [" ".join(column[i] for column in differing) for i in range(len(words))]
        right[tuple(sorted(choices))][choices[0]] += 1
    return sum(max(counts.values()) for counts in right.values()) / sum(map(Counter.total, right.values()))


class Contrast:
    """The examples of a test set, put before a model.

    Args:
        opened: the model; its task says whether it reads documents, and how long ones.
        data: the data-bin.
        subset: of the data-bin, loaded here.
        examples: a file of examples.

    Raises:
        UserError: as `read_examples`, or the data-bin has no documents, or its references are not the examples'.
    """

    def __init__(self, opened: LoadedModel, data: Path, subset: str, examples: Path) -> None:
        self.opened = opened
        pairs = opened.load(subset)
        dataset = opened.task.dataset(subset)
        # With --document-length the sides are chunks of sentences, else sentences.
        self.source = dataset.src
        self.targets = getattr(dataset.tgt, "sentences", dataset.tgt)
        self.between = getattr(dataset.tgt, "between", torch.tensor([], dtype=torch.long))
        self.bounds = getattr(dataset.src, "bounds", np.arange(pairs + 1))
        self.segment = (
            BPE_METHODS[kind].load(data)
            if (kind := open_data_bin(data).subwords) in BPE_METHODS
            else lambda lines: lines
        )
        self.examples = read_examples(examples, read_document_lengths(data / f"{subset}.docs", len(self.targets)))
        for example in self.examples:
            if not torch.equal(self.encode(example.variants[0]), self.targets[example.sentence][:-1]):
                raise UserError(
                    f"{examples}: the right translation of sentence {example.sentence + 1} is not the reference in "
                    f"{data}; give the examples of this test set, or a data-bin whose target side is theirs"
                )

    def encode(self, text: str) -> Tensor:
        """The tokens of a translation, without an end."""
        (segmented,) = self.segment([text])
        dictionary = self.opened.task.target_dictionary
        return dictionary.encode_line(segmented, add_if_not_exist=False, append_eos=False).long()

    def candidates(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Of each variant of each example: source, target with what comes before, and where the variant begins."""
        end = torch.tensor([self.opened.task.target_dictionary.eos()])
        for example in self.examples:
            chunk = int(np.searchsorted(self.bounds, example.sentence, side="right")) - 1
            context = [part for i in range(self.bounds[chunk], example.sentence)
                       for part in (self.targets[i][:-1], self.between)]  # fmt: skip
            begins = sum(map(len, context))
            for variant in example.variants:
                yield self.source[chunk], torch.cat([*context, self.encode(variant), end]), begins

    @torch.no_grad()
    def scores(self, batch_size: int) -> Iterator[float]:
        """Log-probability of each candidate's variant, in the order of `candidates`."""
        candidates = list(self.candidates())
        order = sorted(range(len(candidates)), key=lambda i: len(candidates[i][1]))
        scored = {}
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            scored.update(zip(numbers, self._score([candidates[i] for i in numbers]), strict=True))
        yield from (scored[i] for i in range(len(candidates)))

    def _score(self, candidates: list[tuple[Tensor, Tensor, int]]) -> list[float]:
        sources, targets, begins = zip(*candidates, strict=True)
        batch = self.opened.batch_of(sources, targets)
        target, of_words = batch["target"], self.opened.log_probabilities(batch)
        words = torch.arange(target.shape[1], device=target.device)
        starts, stops = (
            [f(i) for i in batch["id"].tolist()] for f in (lambda i: begins[i], lambda i: len(targets[i]) - 1)
        )
        inside = (words >= target.new_tensor(starts)[:, None]) & (words < target.new_tensor(stops)[:, None])
        sums = (of_words.double() * inside).sum(1).tolist()
        return [score for _, score in sorted(zip(batch["id"].tolist(), sums, strict=True))]

    def accuracy(self, batch_size: int = 64) -> float:
        """Share of examples whose right variant is more probable than every wrong one."""
        scores = self.scores(batch_size)
        right = 0
        for example in self.examples:
            first, *others = (next(scores) for _ in example.variants)
            right += first > max(others)
        return right / len(self.examples)
