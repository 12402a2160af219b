"""The generated German-English corpus: documents in which a pronoun's antecedent is in an earlier sentence.

The rule to learn: **`it` is the thing that was most recently the subject of a sentence.** A passage begins with such a
sentence, which introduces its topic. Every pronoun of the passage refers to that topic and has its gender in German:
er/sie/es as a subject, ihn/sie/es as an object. A document has one or two passages. If it has two, their topics differ
in gender, so that remembering the first subject of the document is not enough.

Shortcuts that do not work:

- The nearest noun. Between the topic and every pronoun there is a distractor: a thing of another gender, as the
  *object* of a person's action. Other sentences mention only persons and places.
- The pronoun's own sentence. Documents come in blocks of three with the same outline and the same pronoun sentences,
  but with different topics and distractors, so that each pronoun occurs once with each gender. A system that translates
  single sentences is right in exactly one third of the cases (if the number of documents is divisible by three).
- The distractors' gender. It differs from the topic's, but the two remaining genders are equally frequent.

Its files, which are written completely or not at all:

train/valid/test.de, .en    one sentence per line, tokens separated by one space
train/valid/test.docs       one document per line: its number of sentences
test.de-en.align            one sentence per line: pairs `i-j`, German index - English index, from 0
test.contrast.jsonl         one pronoun per line, see `contrastive_examples`
corpus.json                 seed, sizes and version of the grammar
"""

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from random import Random
from typing import NamedTuple

from relumt.corpora.document_lengths import write_lengths
from relumt.corpora.generated_grammar import Sentence, distractor, filler, introduction, pronoun_sentence
from relumt.corpora.generated_lexicon import GENDERS, Weighted
from relumt.errors import UserError
from relumt.files import open_text, write_lines
from relumt.folders import atomic_folder

GRAMMAR_VERSION = 1
"""Increment it with every change that alters the corpus of a seed."""

BLOCK = len(GENDERS)

# By number of sentences. I: introduction, D: distractor, F: filler, P: pronoun.
_PASSAGES = ("IDP", "IDPP IDFP IFDP", "IDPDP IDFPP IFDPP IDPFP", "IDPDPP IDPFDP IFDPDP IDDPFP")
PASSAGES = {length: Weighted(kinds.split()) for length, kinds in enumerate(_PASSAGES, start=3)}
PASSAGE_LENGTHS: Weighted[tuple[int, ...]] = Weighted([(5,), (6,), (3, 3), (3, 4), (4, 3), (4, 4)])
PRONOUN_CASES = Weighted(["nominative", "accusative"])
ROTATIONS = Weighted([1, 2])
ORDERS = Weighted(permutations(range(BLOCK)))


class Slot(NamedTuple):
    """One sentence of a block's outline.

    `kind` is a letter of PASSAGES. The gender of the sentence's thing, or of a pronoun's topic, is `rotation` places
    after the document's gender in GENDERS. `pronoun` is the pronoun sentence, which the block's documents share.
    """

    kind: str
    rotation: int
    pronoun: Sentence | None


class Document(NamedTuple):
    """A document: its sentences, and for each its kind and the gender of its thing, None for a filler."""

    sentences: tuple[Sentence, ...]
    kinds: tuple[str, ...]
    genders: tuple[str | None, ...]


def generate_documents(rng: Random, count: int) -> Iterator[Document]:
    """Generate `count` documents, block by block. The last block may be incomplete."""
    for start in range(0, count, BLOCK):
        outline = list(_outline(rng))
        for shift in ORDERS.draw(rng)[: count - start]:
            genders = tuple(None if slot.kind == "F" else GENDERS[(shift + slot.rotation) % BLOCK] for slot in outline)
            sentences = tuple(_sentence(rng, slot, gender) for slot, gender in zip(outline, genders, strict=True))
            yield Document(sentences, tuple(slot.kind for slot in outline), genders)


def _outline(rng: Random) -> Iterator[Slot]:
    """Yield the outline that the documents of a block share."""
    topic = 0
    for length in PASSAGE_LENGTHS.draw(rng):
        topic += ROTATIONS.draw(rng)
        for kind in PASSAGES[length].draw(rng):
            offset = ROTATIONS.draw(rng) if kind == "D" else 0
            yield Slot(kind, topic + offset, pronoun_sentence(rng, PRONOUN_CASES.draw(rng)) if kind == "P" else None)


def _sentence(rng: Random, slot: Slot, gender: str | None) -> Sentence:
    if gender is None:
        return filler(rng)
    if slot.pronoun is not None:
        return slot.pronoun.in_gender(gender)
    return (introduction if slot.kind == "I" else distractor)(rng, gender)


def contrastive_examples(documents: list[Document]) -> Iterator[dict[str, object]]:
    """Yield the pronouns of documents as contrastive examples.

    `source` is English, `target` is German, `wrong` has the German sentence with the pronoun in each other gender, and
    the contexts are the earlier sentences of the document.
    """
    for document in documents:
        for index, (sentence, gender) in enumerate(zip(document.sentences, document.genders, strict=True)):
            if sentence.pronoun:
                earlier = document.sentences[:index]
                yield {
                    "source": " ".join(sentence.english),
                    "target": " ".join(sentence.german),
                    "wrong": [" ".join(sentence.in_gender(other).german) for other in GENDERS if other != gender],
                    "source_context": [" ".join(one.english) for one in earlier],
                    "target_context": [" ".join(one.german) for one in earlier],
                }


def write_corpus(out: Path, seed: int, counts: dict[str, int]) -> dict[str, int]:
    """Write a corpus of `counts[split]` documents per split to the new folder `out`.

    The splits are independent of one another, and a larger count only appends documents.

    Returns:
        The number of sentence pairs per split.

    Raises:
        UserError: `out` is not empty, or is no folder.
    """
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} exists and is not an empty folder; remove it or give another --out")
    sizes = {}
    with atomic_folder(out) as stage:
        folder = stage.result
        for split, count in counts.items():
            documents = generate_documents(Random(f"relumt synth {GRAMMAR_VERSION} {seed} {split}"), count)
            lengths = []
            with open_text(folder / f"{split}.de", "w") as german, open_text(folder / f"{split}.en", "w") as english:
                for document in documents if split != "test" else (kept := list(documents)):
                    german.writelines(" ".join(sentence.german) + "\n" for sentence in document.sentences)
                    english.writelines(" ".join(sentence.english) + "\n" for sentence in document.sentences)
                    lengths.append(len(document.sentences))
            write_lengths(folder / f"{split}.docs", lengths)
            sizes[split] = sum(lengths)
        links = (sentence.alignment for document in kept for sentence in document.sentences)
        write_lines(folder / "test.de-en.align", (" ".join(f"{i}-{j}" for i, j in alignment) for alignment in links))
        examples = (json.dumps(example, ensure_ascii=False) for example in contrastive_examples(kept))
        write_lines(folder / "test.contrast.jsonl", examples)
        summary = {"grammar": GRAMMAR_VERSION, "seed": seed, "documents": counts, "sentences": sizes}
        (folder / "corpus.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return sizes
