"""Contrastive evaluation of context use: is a reference more probable than wrong variants of one of its sentences?

An example (a line of test.contrast.jsonl) has a sentence of a document, its reference translation and wrong variants
of it. It counts as correct if the reference is more probable than every variant. The model reads the source chunk that
contains the sentence; its decoder is fed the references of the earlier sentences of the chunk, then the translation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from relumt.analysis.candidate_scores import Candidate, decide, require_fitting, score_candidates
from relumt.corpora.bitext import RESERVED_WORDS
from relumt.data.concatenated_sentences import ConcatenatedSentences
from relumt.data.document_lengths import read_document_lengths
from relumt.errors import UserError
from relumt.inference.loaded_model import LoadedModel
from relumt.inference.text_encoding import load_segmenter
from relumt.json_files import decode_json
from relumt.text_files import normalize_line, read_lines

Index = Annotated[int, Meta(ge=0)]
"""Number of a document or of a sentence in it, from 0."""


@dataclass(frozen=True)
class ContrastiveExample:
    """A sentence with several translations.

    Attributes:
        sentence: index of the sentence in the test set.
        variants: translations, the reference first.
    """

    sentence: int
    variants: tuple[str, ...]


@dataclass(frozen=True)
class _ExampleLine:
    """The fields of a line of test.contrast.jsonl that are used. A ValueError ends up in the error message."""

    document: Index
    sentence: Index
    target: str
    wrong: list[str]

    def __post_init__(self) -> None:
        if not self.wrong:
            raise ValueError("there is no wrong variant")
        if "" in self.variants:
            raise ValueError("a variant is empty")
        if len(set(self.variants)) < len(self.variants):
            raise ValueError("two variants are the same")
        if reserved := RESERVED_WORDS.intersection(" ".join(self.variants).split()):
            raise ValueError(f"the word {min(reserved)} is reserved by fairseq")

    @property
    def variants(self) -> tuple[str, ...]:
        """All translations, normalized, the reference first."""
        return tuple(map(normalize_line, (self.target, *self.wrong)))


def read_examples(path: Path, documents: Sequence[int]) -> list[ContrastiveExample]:
    """Read the examples for a test set of documents with these numbers of sentences.

    Raises:
        UserError: the file is missing or empty, or a line is not an example, repeats another one, or names a sentence
            that does not exist.
    """
    first_sentences = np.cumsum([0, *documents]).tolist()
    examples: dict[ContrastiveExample, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}:{number}"
        parsed = decode_json(line, _ExampleLine, where, "give a file such as test.contrast.jsonl of relumt synth")
        document, sentence = parsed.document, parsed.sentence
        if not (document < len(documents) and sentence < documents[document]):
            raise UserError(f"{where}: the test set has no sentence {sentence} in document {document}")
        example = ContrastiveExample(first_sentences[document] + sentence, parsed.variants)
        if (first := examples.setdefault(example, number)) < number:
            raise UserError(f"{where}: repeats the example of line {first}; remove one of them")
    if not examples:
        raise UserError(f"{path}: expected contrastive examples, found an empty file; relumt synth writes such a file")
    return list(examples)


class HasVariants(Protocol):
    """An example whose translations are known, the reference first."""

    @property
    def variants(self) -> tuple[str, ...]:
        """All translations."""


def majority_accuracy(examples: Iterable[HasVariants]) -> float:
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


class ContrastiveTest:
    """Scores the contrastive examples of a test set with a model.

    Args:
        loaded: the model; its task determines whether it reads chunks of documents, and how long they are.
        data: the data-bin.
        subset: name of the subset, which is loaded here.
        examples: file of examples.

    Raises:
        UserError: the examples are invalid or from another test set, or the data-bin has no document boundaries.
    """

    def __init__(self, loaded: LoadedModel, data: Path, subset: str, examples: Path) -> None:
        self.loaded = loaded
        num_pairs = loaded.load_subset(subset)
        dataset = loaded.task.dataset(subset)
        self.source = dataset.src
        self.targets, self.chunk_bounds = dataset.tgt, np.arange(num_pairs + 1)
        self.separator = torch.tensor([], dtype=torch.long)
        if isinstance(dataset.tgt, ConcatenatedSentences):
            self.targets, self.chunk_bounds = dataset.tgt.sentences, dataset.tgt.bounds
            self.separator = dataset.tgt.separator
        self.segment = load_segmenter(data)
        self.examples = read_examples(examples, read_document_lengths(data / f"{subset}.docs", len(self.targets)))
        for example in self.examples:
            if not torch.equal(self.encode(example.variants[0]), self.targets[example.sentence][:-1]):
                raise UserError(
                    f"{examples}: the target of sentence {example.sentence + 1} is not the reference in {data}; give "
                    "the examples of this test set, or a data-bin for this target language"
                )

    def encode(self, text: str) -> Tensor:
        """Return the token indices of a translation without an end-of-sentence symbol."""
        (segmented,) = self.segment([text])
        dictionary = self.loaded.task.target_dictionary
        return dictionary.encode_line(segmented, add_if_not_exist=False, append_eos=False).long()

    def candidates(self) -> Iterator[Candidate]:
        """Yield each variant of each example with its context; raise UserError for one that the model cannot read."""
        eos = torch.tensor([self.loaded.task.target_dictionary.eos()])
        for example in self.examples:
            chunk = int(np.searchsorted(self.chunk_bounds, example.sentence, side="right")) - 1
            context = [tokens for i in range(self.chunk_bounds[chunk], example.sentence)
                       for tokens in (self.targets[i][:-1], self.separator)]  # fmt: skip
            start = sum(map(len, context))
            for variant in example.variants:
                candidate = Candidate(self.source[chunk], torch.cat([*context, self.encode(variant), eos]), start)
                require_fitting(candidate, self.loaded, f"sentence {example.sentence + 1} or a translation of it")
                yield candidate

    def scores(self, batch_size: int) -> list[float]:
        """Return the log-probability of every variant, given its context, in the order of `candidates`.

        Raises:
            AttemptFailedError: a probability is NaN, so the model cannot be used.
        """
        return score_candidates(self.loaded, list(self.candidates()), batch_size)

    def decisions(self, batch_size: int) -> list[bool]:
        """Return for each example whether its reference is more probable than every wrong variant."""
        return list(decide(self.scores(batch_size), (len(example.variants) for example in self.examples)))
