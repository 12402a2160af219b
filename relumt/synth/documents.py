"""Documents: sequences of sentences in which a pronoun's antecedent stands in an earlier sentence.

The rule, for whoever wants to learn it: **`it` is the thing that was last the subject of a sentence.** A
passage opens with such a sentence (the introduction of its topic); every pronoun of the passage refers to
that topic, and German gives it the topic's gender: er/sie/es as a subject, ihn/sie/es as an object. A
document has one passage or two, and the topics of two differ in gender, so that remembering the first
subject of the document is not enough.

What does not help:

- the nearest noun: between the topic and every pronoun stands a distractor, a thing of another gender as the
  *object* of a person's action; other sentences name only persons and places;
- the pronoun's own sentence: documents come in blocks of three that share their plan and their pronoun
  sentences, while topics and distractors differ, each pronoun occurring once with each gender. So every
  English pronoun sentence is found as often with er (ihn) as with sie and es, and whoever translates it
  without its document is right in exactly one of three cases (in whole blocks: numbers of documents that
  divide by three);
- the distractors' gender: for a topic of any gender the two other genders are equally frequent, though a
  distractor does exclude its own gender, as it must.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from relumt.synth.grammar import Sentence, distractor, filler, introduction, pronoun_object, pronoun_subject
from relumt.synth.morphology import GENDERS
from relumt.synth.sampling import uniform

BLOCK = len(GENDERS)

# I introduction, D distractor, F filler, P pronoun; passages by their number of sentences.
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


class Step(NamedTuple):
    """One sentence of a block's plan.

    `kind` is a letter of PASSAGES. `rotation` turns the gender of the block's k-th document into that of
    the sentence's thing (the topic, also for a pronoun; the distractor). `pronoun` is the sentence that a
    block's documents share.
    """

    kind: str
    rotation: int
    pronoun: Sentence | None


class Document(NamedTuple):
    """Sentences, and for each its kind and its thing's gender (of a pronoun: its topic's; of a filler: None)."""

    sentences: tuple[Sentence, ...]
    kinds: tuple[str, ...]
    genders: tuple[str | None, ...]


def documents(rng: Random, count: int) -> Iterator[Document]:
    """`count` documents, block by block; the last block is cut short where three do not divide `count`."""
    for start in range(0, count, BLOCK):
        plan = _plan(rng)
        for turn in ORDERS.draw(rng)[: count - start]:
            yield _document(rng, plan, turn)


def _plan(rng: Random) -> list[Step]:
    """The steps of a block's documents."""
    steps = []
    topic = 0
    for length in PASSAGE_LENGTHS.draw(rng):
        topic += ROTATIONS.draw(rng)
        for kind in PASSAGES[length].draw(rng):
            away = ROTATIONS.draw(rng) if kind == "D" else 0
            shared = PRONOUN_SENTENCES.draw(rng)(rng) if kind == "P" else None
            steps.append(Step(kind, topic + away, shared))
    return steps


def _document(rng: Random, plan: list[Step], turn: int) -> Document:
    """The document of a block that is the `turn`-th in the order of genders."""
    genders = [None if step.kind == "F" else GENDERS[(turn + step.rotation) % BLOCK] for step in plan]
    sentences = [_sentence(rng, step, gender) for step, gender in zip(plan, genders, strict=True)]
    return Document(tuple(sentences), tuple(step.kind for step in plan), tuple(genders))


def _sentence(rng: Random, step: Step, gender: str | None) -> Sentence:
    if step.pronoun is not None:
        return step.pronoun.in_gender(gender)
    if step.kind == "F":
        return filler(rng)
    return (introduction if step.kind == "I" else distractor)(rng, gender)
