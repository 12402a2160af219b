"""Sentence patterns: the sentences of a document as aligned German and English tokens.

`documents` combines four kinds of sentences:

introduction   a thing is the subject: `heute steht der alte Tisch im Garten .`
distractor     a person is the subject, a thing the object: `Anna hat die Lampe gekauft .`
pronoun        `it` is the subject or the object: `der Lehrer sagt , dass er sehr schwer ist .`
filler         only persons occur: `Peter lacht , weil das Kind tanzt .`

In a pronoun sentence, only the pronoun itself depends on the gender.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from relumt.synth import lexicon
from relumt.synth.clauses import (
    PERSON_STYLE,
    REPORTING_TENSES,
    THING_STYLE,
    Clause,
    Style,
    Tense,
    fronted_clause,
    main_clause,
    negation,
    subordinate_clause,
)
from relumt.synth.lexicon import Verb
from relumt.synth.morphology import GENDERS, PRONOUNS, THIRD
from relumt.synth.phrases import (
    DETERMINERS,
    EMPTY,
    OBJECT_DETERMINERS,
    PRONOUN_LINK,
    Phrase,
    Subject,
    described_person,
    joined,
    linked,
    pair,
    person_phrase,
    person_subject,
    place_phrase,
    pronoun,
    thing_phrase,
)
from relumt.synth.sampling import Weighted, chance

# Probability of an optional constituent if the sentence is one clause, or two.
ALONE, BESIDE_ANOTHER = 0.7, 0.25
NEGATED = 0.125

MakeClause = Callable[[float], Clause]
Pattern = Callable[[Random, MakeClause], Phrase]


class PronounSlot(NamedTuple):
    """The index of a pronoun among the German tokens of its sentence, and its case."""

    position: int
    case: str


class Sentence(NamedTuple):
    """A sentence pair: tokens, alignment as pairs (German index, English index), and the pronoun if it has one."""

    german: tuple[str, ...]
    english: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    pronoun: PronounSlot | None

    def in_gender(self, gender: str) -> "Sentence":
        """Return the sentence with its pronoun in the given gender; raise ValueError if it has none."""
        if self.pronoun is None:
            raise ValueError(f"no pronoun in {' '.join(self.german)!r}")
        position, case = self.pronoun
        german = (*self.german[:position], PRONOUNS[case][gender], *self.german[position + 1 :])
        return self._replace(german=german)


def introduction(rng: Random, gender: str) -> Sentence:
    """Generate one clause whose subject is a thing of the given gender."""
    subject = Subject(thing_phrase(rng, gender, "nominative", DETERMINERS.draw(rng)), THIRD)
    return _finished(_alone(rng, partial(_thing_clause, rng, subject)))


def distractor(rng: Random, gender: str) -> Sentence:
    """Generate a sentence whose subject is a person and whose object is a thing of the given gender."""
    determiner = OBJECT_DETERMINERS.draw(rng)
    thing = thing_phrase(rng, gender, "accusative", determiner)
    # German negates an indefinite object with `kein`, never with `nicht`.
    negated = 0.0 if determiner.german in ("ein", "kein") else NEGATED
    return _finished(DISTRACTOR_PATTERNS.draw(rng)(rng, partial(_acting_clause, rng, EMPTY, thing, negated)))


def pronoun_subject(rng: Random) -> Sentence:
    """Generate a sentence with `it` as a subject. Set its gender with `in_gender`."""
    subject = Subject(pronoun("nominative", GENDERS[0]), THIRD)
    phrase = PRONOUN_PATTERNS.draw(rng)(rng, partial(_thing_clause, rng, subject))
    return _finished(phrase, "nominative")


def pronoun_object(rng: Random) -> Sentence:
    """Generate a sentence with `it` as an object. Set its gender with `in_gender`."""
    thing = pronoun("accusative", GENDERS[0])
    phrase = PRONOUN_PATTERNS.draw(rng)(rng, partial(_acting_clause, rng, thing, EMPTY, NEGATED))
    return _finished(phrase, "accusative")


def filler(rng: Random) -> Sentence:
    """Generate two clauses about persons."""
    return _finished(FILLER_PATTERNS.draw(rng)(rng, partial(_resting_clause, rng)))


def _thing_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    """Generate what a thing does: it stands somewhere, shines, belongs to someone, or is old."""
    return THING_CLAUSES.draw(rng)(rng, subject, optional)


def _position_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    clause = _with_verb(rng, subject, lexicon.POSITION.draw(rng), THING_STYLE, NEGATED, optional)
    return clause._replace(place=place_phrase(rng))


def _event_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    clause = _with_verb(rng, subject, lexicon.THING_INTRANSITIVE.draw(rng), THING_STYLE, NEGATED, optional)
    return clause._replace(place=_optional_place(rng, optional))


def _dative_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    clause = _with_verb(rng, subject, lexicon.DATIVE.draw(rng), THING_STYLE, NEGATED, optional)
    return clause._replace(object=person_phrase(rng, "dative"))


def _linking_clause(rng: Random, subject: Subject, optional: float) -> Clause:
    quality = joined(pair(lexicon.DEGREES.draw(rng)), pair(lexicon.THING_ADJECTIVES.draw(rng)))
    clause = _with_verb(rng, subject, lexicon.LINKING.draw(rng), THING_STYLE, 0.0, optional)
    return clause._replace(predicate=quality, place=_optional_place(rng, optional / 2))


THING_CLAUSES = Weighted([_position_clause, _event_clause, _dative_clause, _linking_clause], [3, 3, 2, 3])


def _acting_clause(rng: Random, pronoun_thing: Phrase, noun_thing: Phrase, negated: float, optional: float) -> Clause:
    """Generate what a person does to a thing, which is either a pronoun or a noun phrase."""
    giving = chance(rng, 0.2)
    verb = (lexicon.DITRANSITIVE if giving else lexicon.TRANSITIVE).draw(rng)
    clause = _with_verb(rng, person_subject(rng), verb, PERSON_STYLE, negated, optional)
    recipient = _recipient(rng) if giving else EMPTY
    place = EMPTY if giving else _optional_place(rng, optional / 2)
    return clause._replace(pronoun=pronoun_thing, object=noun_thing, recipient=recipient, place=place)


def _resting_clause(rng: Random, optional: float) -> Clause:
    """Generate what a person does without an object."""
    subject = Subject(described_person(rng, "nominative"), THIRD) if chance(rng, 0.5) else person_subject(rng)
    clause = _with_verb(rng, subject, lexicon.PERSON_INTRANSITIVE.draw(rng), PERSON_STYLE, NEGATED, optional)
    return clause._replace(place=_optional_place(rng, optional))


def _with_verb(rng: Random, subject: Subject, verb: Verb, style: Style, negated: float, optional: float) -> Clause:
    """Combine subject and verb, with probability `negated` a negation, and with probability `optional` an adverb."""
    not_ = negation() if chance(rng, negated) else EMPTY
    tense: Tense = (style.negatable if not_.german else style.tenses).draw(rng)
    adverbs = style.past_adverbs if tense.past else style.other_adverbs
    adverb = pair(adverbs.draw(rng)) if chance(rng, optional) else EMPTY
    return Clause(subject, tense.build(verb, subject.person, not_), adverb=adverb, negation=not_)


def _optional_place(rng: Random, probability: float) -> Phrase:
    return place_phrase(rng) if chance(rng, probability) else EMPTY


def _recipient(rng: Random) -> Phrase:
    """Return `dem Kind`, `to the child`. German expresses `to` by the case, so `to` is not aligned."""
    person = person_phrase(rng, "dative")
    return Phrase(person.german, (("to", None), *person.english))


def _alone(rng: Random, make_clause: MakeClause) -> Phrase:
    """Use the clause as the sentence. Each language may front the adverb, independently of the other."""
    clause = make_clause(ALONE)
    plain = main_clause(clause)
    if not clause.adverb.german:
        return plain
    fronted = fronted_clause(clause.adverb, clause._replace(adverb=EMPTY))
    german = fronted if chance(rng, 0.5) else plain
    english = fronted if chance(rng, 0.3) else plain
    return Phrase(german.german, english.english)


def _reported(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `Anna sagt , dass ...`. English sometimes omits `that`."""
    verb, subject, tense = lexicon.REPORTING.draw(rng), person_subject(rng), REPORTING_TENSES.draw(rng)
    matrix = Clause(subject, tense.build(verb, subject.person, EMPTY))
    conjunction = linked(("dass",), ("that",)) if chance(rng, 0.6) else OMITTED_THAT
    reported = subordinate_clause(conjunction, make_clause(BESIDE_ANOTHER))
    return joined(main_clause(matrix), GERMAN_COMMA, reported)


def _in_second_clause(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `Peter wartet , weil ...`."""
    reason = subordinate_clause(pair(lexicon.CONJUNCTIONS.draw(rng)), make_clause(BESIDE_ANOTHER))
    return joined(main_clause(_resting_clause(rng, 0.0)), GERMAN_COMMA, reason)


def _after_first_clause(rng: Random, make_clause: MakeClause) -> Phrase:
    """Return `weil Peter wartet , ...`, with the verb before the subject."""
    reason = subordinate_clause(pair(lexicon.CONJUNCTIONS.draw(rng)), _resting_clause(rng, 0.0))
    return fronted_clause(joined(reason, linked((",",), (",",))), make_clause(BESIDE_ANOTHER))


OMITTED_THAT = Phrase((("dass", None),), ())
GERMAN_COMMA = Phrase(((",", None),), ())

DISTRACTOR_PATTERNS: Weighted[Pattern] = Weighted(
    [_alone, _reported, _in_second_clause, _after_first_clause], [6, 2, 1, 1]
)
PRONOUN_PATTERNS: Weighted[Pattern] = Weighted(DISTRACTOR_PATTERNS.items, [3, 3, 2, 2])
FILLER_PATTERNS: Weighted[Pattern] = Weighted([_reported, _in_second_clause, _after_first_clause], [2, 1, 1])


def _finished(phrase: Phrase, pronoun_case: str | None = None) -> Sentence:
    """Add the period, turn links into index pairs and locate the pronoun."""
    german, english = joined(phrase, linked((".",), (".",)))
    translations: dict[object, list[int]] = {}
    for index, (_, link) in enumerate(english):
        translations.setdefault(link, []).append(index)
    alignment = [
        (index, translation)
        for index, (_, link) in enumerate(german)
        if link is not None
        for translation in translations[link]
    ]
    slot = None
    if pronoun_case is not None:
        position = next(index for index, (_, link) in enumerate(german) if link == PRONOUN_LINK)
        slot = PronounSlot(position, pronoun_case)
    return Sentence(tuple([word for word, _ in german]), tuple([word for word, _ in english]), tuple(alignment), slot)
