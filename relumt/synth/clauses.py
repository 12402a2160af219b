"""Verb groups and clauses: tense, negation, separable verbs and the word order of the two languages.

German puts the finite verb second in a main clause and last in a subordinate one. The particle, participle or
infinitive closes the clause. A pronoun object precedes the adverb, a noun object follows it. English has subject, verb,
object, place, adverb, and may front the adverb, whether German does or not.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from relumt.synth.lexicon import (
    AUXILIARIES,
    HABEN_PRESENT,
    PERSON_ADVERBS,
    PERSON_ADVERBS_PAST,
    PERSON_AUXILIARIES,
    SEIN,
    THING_ADVERBS,
    THING_ADVERBS_PAST,
    UNNEGATED_AUXILIARIES,
    Auxiliary,
    Pair,
    Verb,
)
from relumt.synth.morphology import THIRD
from relumt.synth.phrases import EMPTY, AlignedWords, Phrase, Subject, joined, linked
from relumt.synth.sampling import Weighted


class VerbGroup(NamedTuple):
    """The words of a verb in a clause.

    In German, a main clause uses `finite` (second position) and `bracket` (end), a subordinate clause uses `final`. In
    English, `english_particle` follows the object.
    """

    finite: AlignedWords
    bracket: AlignedWords
    final: AlignedWords
    english: AlignedWords
    english_particle: AlignedWords


def negation() -> Phrase:
    """Return `nicht` and `not`. The English word goes into the verb group, the German one into the clause."""
    return linked(("nicht",), ("not",))


def present_tense(verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `räumt ... auf`, `aufräumt`: `tidies ... up`; negated `does not tidy ... up`."""
    link = object()
    finite = verb.present[person]
    if negated.english:
        english = (
            ("does" if person == THIRD else "do", link),
            *negated.english,
            *_linked_to(link, verb.english_base),
        )
    else:
        english = _linked_to(link, verb.english_present[person])
    return VerbGroup(
        finite=((finite, link),),
        bracket=((verb.particle, link),) if verb.particle else (),
        final=((verb.particle + finite, link),),
        english=english,
        english_particle=_linked_to(link, verb.english_particle),
    )


def perfect_tense(verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `hat ... aufgeräumt`, `aufgeräumt hat`: `tidied ... up`; negated `did not tidy ... up`."""
    link = object()
    auxiliary = (SEIN.present if verb.perfect_with_sein else HABEN_PRESENT)[person]
    if negated.english:
        english = (("did", link), *negated.english, *_linked_to(link, verb.english_base))
    else:
        english = _linked_to(link, verb.english_past)
    return VerbGroup(
        finite=((auxiliary, link),),
        bracket=((verb.participle, link),),
        final=((verb.participle, link), (auxiliary, link)),
        english=english,
        english_particle=_linked_to(link, verb.english_particle),
    )


def with_auxiliary(auxiliary: Auxiliary, verb: Verb, person: int, negated: Phrase) -> VerbGroup:
    """Return `wird ... aufräumen`, `aufräumen wird`: `will (not) tidy ... up`."""
    link = object()
    governing = linked((auxiliary.german[person],), auxiliary.english[person])
    infinitive = ((verb.infinitive, link),)
    return VerbGroup(
        finite=governing.german,
        bracket=infinitive,
        final=infinitive + governing.german,
        english=governing.english + negated.english + _linked_to(link, verb.english_base),
        english_particle=_linked_to(link, verb.english_particle),
    )


def _linked_to(link: object, words: tuple[str, ...]) -> AlignedWords:
    return tuple([(word, link) for word in words])


class Tense(NamedTuple):
    """How to build a verb group, and whether it goes with adverbs of the past."""

    build: Callable[[Verb, int, Phrase], VerbGroup]
    past: bool


PRESENT = Tense(present_tense, past=False)
PERFECT = Tense(perfect_tense, past=True)
REPORTING_TENSES = Weighted([PRESENT, PERFECT], [3, 2])


def _tenses(*auxiliaries: Auxiliary) -> Weighted[Tense]:
    """Return present and perfect, for two thirds of all clauses, and the auxiliaries, the first most often."""
    governed = [Tense(partial(with_auxiliary, auxiliary), past=False) for auxiliary in auxiliaries]
    ranks = [1 / (rank + 3) for rank in range(len(governed))]
    return Weighted([PRESENT, PERFECT, *governed], [1.1 * sum(ranks), 0.9 * sum(ranks), *ranks])


class Style(NamedTuple):
    """Tenses and adverbs that suit a kind of subject.

    `negatable` has the tenses whose negation means the same in both languages. (`muss nicht` does not mean `must not`.)
    """

    tenses: Weighted[Tense]
    negatable: Weighted[Tense]
    past_adverbs: Weighted[Pair]
    other_adverbs: Weighted[Pair]


_NEGATABLE = _tenses(*AUXILIARIES)
PERSON_STYLE = Style(
    _tenses(*AUXILIARIES, *UNNEGATED_AUXILIARIES, *PERSON_AUXILIARIES),
    _NEGATABLE,
    PERSON_ADVERBS_PAST,
    PERSON_ADVERBS,
)
THING_STYLE = Style(_tenses(*AUXILIARIES, *UNNEGATED_AUXILIARIES), _NEGATABLE, THING_ADVERBS_PAST, THING_ADVERBS)


class Clause(NamedTuple):
    """The constituents of a clause. Those that are absent are EMPTY."""

    subject: Subject
    verb: VerbGroup
    pronoun: Phrase = EMPTY
    adverb: Phrase = EMPTY
    recipient: Phrase = EMPTY
    object: Phrase = EMPTY
    negation: Phrase = EMPTY
    place: Phrase = EMPTY
    predicate: Phrase = EMPTY


def main_clause(clause: Clause) -> Phrase:
    """Put the subject first and the verb second: `Anna räumt heute den Keller auf`."""
    subject, verb = clause.subject.phrase, clause.verb
    german = subject.german + verb.finite + _middle(clause) + verb.bracket
    return Phrase(german, _english(clause))


def fronted_clause(front: Phrase, clause: Clause) -> Phrase:
    """Put `front` first, then verb and subject: `heute räumt Anna den Keller auf`. English keeps subject and verb."""
    subject, verb = clause.subject.phrase, clause.verb
    german = front.german + verb.finite + subject.german + _middle(clause) + verb.bracket
    return Phrase(german, front.english + _english(clause))


def subordinate_clause(conjunction: Phrase, clause: Clause) -> Phrase:
    """Put the verb last: `weil Anna heute den Keller aufräumt`."""
    body = Phrase(clause.subject.phrase.german + _middle(clause) + clause.verb.final, _english(clause))
    return joined(conjunction, body)


def _middle(clause: Clause) -> AlignedWords:
    return (
        clause.pronoun.german
        + clause.adverb.german
        + clause.recipient.german
        + clause.object.german
        + clause.negation.german
        + clause.place.german
        + clause.predicate.german
    )


def _english(clause: Clause) -> AlignedWords:
    return (
        clause.subject.phrase.english
        + clause.verb.english
        + clause.pronoun.english
        + clause.object.english
        + clause.verb.english_particle
        + clause.predicate.english
        + clause.recipient.english
        + clause.place.english
        + clause.adverb.english
    )
