"""Phrases in both languages, whose words carry links from which the alignment is computed.

A word is a pair (text, link). Words with the same link are translations of one another: if one German and two English
words share a link, the German word is aligned to both. A word whose link is None is not aligned, for example the comma
before a German clause.
"""

from random import Random
from typing import NamedTuple

from relumt.synth import lexicon
from relumt.synth.lexicon import Noun, Pair
from relumt.synth.morphology import (
    PERSONS,
    PRONOUNS,
    THIRD,
    adjective,
    compound,
    determiner,
    indefinite_article,
)
from relumt.synth.sampling import Weighted, chance

Word = tuple[str, object]
AlignedWords = tuple[Word, ...]

PRONOUN_LINK = "pronoun"  # the link of the pronoun that refers to another sentence


class Phrase(NamedTuple):
    """The words of a constituent in each language, in that language's order."""

    german: AlignedWords
    english: AlignedWords


EMPTY = Phrase((), ())


def linked(german: tuple[str, ...], english: tuple[str, ...], link: object = None) -> Phrase:
    """Return words that are all translations of one another, with a new link unless one is given."""
    link = link or object()
    return Phrase(tuple([(word, link) for word in german]), tuple([(word, link) for word in english]))


def joined(*phrases: Phrase) -> Phrase:
    """Concatenate phrases in the same order in both languages."""
    german: AlignedWords = ()
    english: AlignedWords = ()
    for phrase in phrases:
        german += phrase.german
        english += phrase.english
    return Phrase(german, english)


def pair(entry: Pair) -> Phrase:
    """Return an uninflected word and its translation."""
    return linked((entry.german,), entry.english)


_THE, _A, _THIS, _MY = Pair("der", ("the",)), Pair("ein", ("a",)), Pair("dies", ("this",)), Pair("mein", ("my",))
_OUR, _YOUR, _NO = Pair("unser", ("our",)), Pair("dein", ("your",)), Pair("kein", ("no",))
_ONE, _THAT = Pair("ein", ("one",)), Pair("dies", ("that",))
DETERMINERS = Weighted([_THE, _A, _ONE, _THIS, _THAT, _MY, _OUR, _YOUR], [10, 3, 2, 2, 2, 2, 2, 1])
OBJECT_DETERMINERS = Weighted([*DETERMINERS.items, _NO], [10, 3, 2, 2, 2, 2, 2, 1, 1])
PERSON_DETERMINERS = Weighted(DETERMINERS.items, [12, 2, 1, 1, 1, 4, 2, 1])
PLACE_DETERMINERS = Weighted(DETERMINERS.items, [12, 2, 1, 1, 1, 2, 2, 1])


def noun_phrase(
    noun: Noun,
    case: str,
    determiner_entry: Pair,
    adjective_entry: Pair | None = None,
    modifier: Pair | None = None,
) -> Phrase:
    """Return determiner, adjective and noun or compound, in agreement; English uses `a` or `an` as required."""
    stem, gender = determiner_entry.german, noun.gender
    german_noun, english_noun = noun.form(case), noun.english
    if modifier is not None:
        german_noun, english_noun = compound(modifier.german, german_noun), modifier.english + english_noun
    rest = linked((german_noun,), english_noun)
    if adjective_entry is not None:
        inflected = adjective(adjective_entry.german, stem, case, gender)
        rest = joined(linked((inflected,), adjective_entry.english), rest)
    article = determiner_entry.english
    if article == ("a",):
        article = (indefinite_article(rest.english[0][0]),)
    return joined(linked((determiner(stem, case, gender),), article), rest)


def prepositional_phrase(preposition: Pair, complement: Phrase) -> Phrase:
    """Put a preposition before a noun phrase in the dative. `in dem` becomes `im`, linked to both English words."""
    (first, first_link), *german_rest = complement.german
    if (preposition.german, first) != ("in", "dem"):
        return joined(pair(preposition), complement)
    contracted = linked(("im",), preposition.english, first_link)
    return joined(contracted, Phrase(tuple(german_rest), complement.english))


def pronoun(case: str, gender: str) -> Phrase:
    """Return `it` and er/sie/es or ihn/sie/es."""
    return linked((PRONOUNS[case][gender],), ("it",), PRONOUN_LINK)


class Subject(NamedTuple):
    """A subject and the index of its person in `morphology.PERSONS`."""

    phrase: Phrase
    person: int


PERSONAL_PRONOUNS = Weighted(
    [(PERSONS.index(german), german, english) for german, english in (("ich", "I"), ("du", "you"), ("wir", "we"))],
    [3, 1, 2],
)


def person_subject(rng: Random) -> Subject:
    """Generate a personal pronoun (`ich`, `du`, `wir`), a name or a noun phrase."""
    if chance(rng, 0.15):
        person, german, english = PERSONAL_PRONOUNS.draw(rng)
        return Subject(linked((german,), (english,)), person)
    return Subject(person_phrase(rng, "nominative"), THIRD)


def person_phrase(rng: Random, case: str) -> Phrase:
    """Generate a name or a noun phrase for a person."""
    if chance(rng, 0.25):
        name = (lexicon.NAMES.draw(rng),)
        return linked(name, name)
    return described_person(rng, case)


def described_person(rng: Random, case: str) -> Phrase:
    """Generate a noun phrase for a person, sometimes with an adjective."""
    adjective_entry = lexicon.PERSON_ADJECTIVES.draw(rng) if chance(rng, 0.3) else None
    return noun_phrase(lexicon.PERSON_NOUNS.draw(rng), case, PERSON_DETERMINERS.draw(rng), adjective_entry)


def thing_phrase(rng: Random, gender: str, case: str, determiner_entry: Pair) -> Phrase:
    """Generate a thing of the given gender, sometimes with an adjective or as a compound."""
    noun = lexicon.THINGS[gender].draw(rng)
    adjective_entry = lexicon.THING_ADJECTIVES.draw(rng) if chance(rng, 0.4) else None
    modifier = lexicon.COMPOUND_MODIFIERS.draw(rng) if noun.may_head_compound and chance(rng, 0.3) else None
    return noun_phrase(noun, case, determiner_entry, adjective_entry, modifier)


def place_phrase(rng: Random) -> Phrase:
    """Generate a preposition and a place in the dative."""
    place = lexicon.PLACES.draw(rng)
    preposition = place.preposition if chance(rng, 0.7) else lexicon.PREPOSITIONS.draw(rng)
    adjective_entry = lexicon.PLACE_ADJECTIVES.draw(rng) if chance(rng, 0.2) else None
    complement = noun_phrase(place.noun, "dative", PLACE_DETERMINERS.draw(rng), adjective_entry)
    return prepositional_phrase(preposition, complement)
