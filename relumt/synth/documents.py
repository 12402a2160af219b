"""Documents: sequences of sentences in which a pronoun's antecedent is in an earlier sentence.

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
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from relumt.synth.grammar import Sentence, distractor, filler, introduction, pronoun_object, pronoun_subject
from relumt.synth.morphology import GENDERS
from relumt.synth.sampling import uniform

BLOCK = len(GENDERS)

# By number of sentences. I: introduction, D: distractor, F: filler, P: pronoun.
PASSAGES = {
    3: uniform(("IDP",)),
    4: uniform(("IDPP", "IDFP", "IFDP")),
    5: uniform(("IDPDP", "IDFPP", "IFDPP", "IDPFP")),
    6: uniform(("IDPDPP", "IDPFDP", "IFDPDP", "IDDPFP")),
}
PASSAGE_LENGTHS = uniform(((5,), (6,), (3, 3), (3, 4), (4, 3), (4, 4)))

PRONOUN_SENTENCES = uniform((pronoun_subject, pronoun_object))
ROTATIONS = uniform((1, 2))
ORDERS = uniform(((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)))


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


def documents(rng: Random, count: int) -> Iterator[Document]:
    """Generate `count` documents, block by block. The last block may be incomplete."""
    for start in range(0, count, BLOCK):
        outline = _outline(rng)
        for shift in ORDERS.draw(rng)[: count - start]:
            yield _document(rng, outline, shift)


def _outline(rng: Random) -> list[Slot]:
    """Return the outline that the documents of a block share."""
    slots = []
    topic = 0
    for length in PASSAGE_LENGTHS.draw(rng):
        topic += ROTATIONS.draw(rng)
        for kind in PASSAGES[length].draw(rng):
            offset = ROTATIONS.draw(rng) if kind == "D" else 0
            shared = PRONOUN_SENTENCES.draw(rng)(rng) if kind == "P" else None
            slots.append(Slot(kind, topic + offset, shared))
    return slots


def _document(rng: Random, outline: list[Slot], shift: int) -> Document:
    """Generate a document from its block's outline; `shift` is the index of its gender in GENDERS."""
    genders = tuple(None if slot.kind == "F" else GENDERS[(shift + slot.rotation) % BLOCK] for slot in outline)
    sentences = tuple(_sentence(rng, slot, gender) for slot, gender in zip(outline, genders, strict=True))
    return Document(sentences, tuple(slot.kind for slot in outline), genders)


def _sentence(rng: Random, slot: Slot, gender: str | None) -> Sentence:
    if gender is None:
        return filler(rng)
    if slot.pronoun is not None:
        return slot.pronoun.in_gender(gender)
    return (introduction if slot.kind == "I" else distractor)(rng, gender)
