"""Constituents of the generated corpus: aligned German and English words.

A word is a pair (text, link). Words with the same link are translations of one another: if one German and two English
words share a link, the German word is aligned to both. A word whose link is None is not aligned, for example the comma
before a German clause.
"""

from random import Random
from typing import NamedTuple

from relumt.corpora import generated_lexicon as lexicon
from relumt.corpora.generated_lexicon import GENDERS, PRONOUNS, THIRD, Noun, Pair, Weighted, Words

AlignedWords = tuple[tuple[str, object], ...]

PRONOUN_LINK = "pronoun"  # the link of the pronoun that refers to another sentence


class Phrase(NamedTuple):
    """The words of a constituent in each language, in that language's order."""

    german: AlignedWords = ()
    english: AlignedWords = ()


EMPTY = Phrase()


def linked(german: Words, english: Words, link: object = None) -> Phrase:
    """Return words that are all translations of one another, with a new link unless one is given."""
    link = link or object()
    return Phrase(tuple([(word, link) for word in german]), tuple([(word, link) for word in english]))


def joined(*phrases: Phrase) -> Phrase:
    """Concatenate phrases in the same order in both languages."""
    return Phrase(sum((phrase.german for phrase in phrases), ()), sum((phrase.english for phrase in phrases), ()))


def pair(entry: Pair) -> Phrase:
    """Return an uninflected word and its translation."""
    return linked((entry.german,), entry.english)


_WORDS = "der the; ein a; ein one; dies this; dies that; mein my; unser our; dein your; kein no"
_DETERMINERS = lexicon.pairs(_WORDS)
DETERMINERS = Weighted(_DETERMINERS[:-1], [10, 3, 2, 2, 2, 2, 2, 1])
OBJECT_DETERMINERS = Weighted(_DETERMINERS, [10, 3, 2, 2, 2, 2, 2, 1, 1])
PERSON_DETERMINERS = Weighted(_DETERMINERS[:-1], [12, 2, 1, 1, 1, 4, 2, 1])
PLACE_DETERMINERS = Weighted(_DETERMINERS[:-1], [12, 2, 1, 1, 1, 2, 2, 1])
PERSONAL_PRONOUNS = Weighted([(0, "ich", "I"), (1, "du", "you"), (3, "wir", "we")], [3, 1, 2])


def noun_phrase(
    noun: Noun, case: str, article: Pair, quality: Pair | None = None, modifier: Pair | None = None
) -> Phrase:
    """Return determiner, adjective and noun or compound, in agreement; English uses `a` or `an` as required."""
    german, english = noun.nominative if case == "nominative" else noun.oblique, noun.english
    if modifier:
        german, english = modifier.german + german.lower(), modifier.english + english
    rest = linked((german,), english)
    if quality:
        inflected = lexicon.adjective(quality.german, article.german, case, noun.gender)
        rest = joined(linked((inflected,), quality.english), rest)
    needs_an = article.english == ("a",) and rest.english[0][0][0] in "aeiouE"  # the lexicon has no exceptions
    word = lexicon.determiner(article.german, case, noun.gender)
    return joined(linked((word,), ("an",) if needs_an else article.english), rest)


def prepositional_phrase(preposition: Pair, complement: Phrase) -> Phrase:
    """Put a preposition before a noun phrase in the dative. `in dem` becomes `im`, linked to both English words."""
    (first, first_link), *german_rest = complement.german
    if (preposition.german, first) != ("in", "dem"):
        return joined(pair(preposition), complement)
    contracted = linked(("im",), preposition.english, first_link)
    return joined(contracted, Phrase(tuple(german_rest), complement.english))


def pronoun(case: str) -> Phrase:
    """Return `it` and `er` or `ihn`; `Sentence.in_gender` changes the gender."""
    return linked((PRONOUNS[case][GENDERS[0]],), ("it",), PRONOUN_LINK)


class Subject(NamedTuple):
    """A subject and the index of its person in tables of verb forms."""

    phrase: Phrase
    person: int = THIRD


def person_subject(rng: Random) -> Subject:
    """Generate a personal pronoun (`ich`, `du`, `wir`), a name or a noun phrase."""
    if rng.random() < 0.15:
        person, german, english = PERSONAL_PRONOUNS.draw(rng)
        return Subject(linked((german,), (english,)), person)
    return Subject(person_phrase(rng, "nominative"))


def person_phrase(rng: Random, case: str) -> Phrase:
    """Generate a name or a noun phrase for a person."""
    if rng.random() < 0.25:
        name = (lexicon.NAMES.draw(rng),)
        return linked(name, name)
    return described_person(rng, case)


def described_person(rng: Random, case: str) -> Phrase:
    """Generate a noun phrase for a person, sometimes with an adjective."""
    quality = lexicon.PERSON_ADJECTIVES.draw(rng) if rng.random() < 0.3 else None
    return noun_phrase(lexicon.PERSON_NOUNS.draw(rng), case, PERSON_DETERMINERS.draw(rng), quality)


def thing_phrase(rng: Random, gender: str, case: str, article: Pair) -> Phrase:
    """Generate a thing of the given gender, sometimes with an adjective or as a compound."""
    noun = lexicon.THINGS[gender].draw(rng)
    quality = lexicon.THING_ADJECTIVES.draw(rng) if rng.random() < 0.4 else None
    modifier = lexicon.COMPOUND_MODIFIERS.draw(rng) if noun.may_head_compound and rng.random() < 0.3 else None
    return noun_phrase(noun, case, article, quality, modifier)


def place_phrase(rng: Random, probability: float = 1.0) -> Phrase:
    """Generate a preposition and a place in the dative; with a `probability` below 1, sometimes nothing."""
    if probability < 1 and rng.random() >= probability:
        return EMPTY
    noun, fitting = lexicon.PLACES.draw(rng)
    preposition = fitting if rng.random() < 0.7 else lexicon.PREPOSITIONS.draw(rng)
    quality = lexicon.PLACE_ADJECTIVES.draw(rng) if rng.random() < 0.2 else None
    return prepositional_phrase(preposition, noun_phrase(noun, "dative", PLACE_DETERMINERS.draw(rng), quality))
