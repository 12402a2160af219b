"""The lexicon: the words of lexicon.toml, parsed into entries with their inflected forms, ready to sample from."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, zip_longest
from typing import TypeVar

from relumt.synth.morphology import GENDERS, present, regular_past, third_person
from relumt.synth.sampling import Weighted, uniform, zipfian

Words = tuple[str, ...]
Item = TypeVar("Item")

COMPOUND_HEADS_PER_GENDER = 20
"""How many of the most frequent nouns of each gender also occur as heads of compounds."""


@dataclass(frozen=True)
class Noun:
    """A noun: its nominative, its form in the other cases (different for weak nouns only) and its English words."""

    gender: str
    nominative: str
    oblique: str
    english: Words
    may_head_compound: bool = False

    def form(self, case: str) -> str:
        """Return the form for a case."""
        return self.nominative if case == "nominative" else self.oblique


@dataclass(frozen=True)
class Pair:
    """An uninflected German word (or an adjective's stem) and its English words."""

    german: str
    english: Words


@dataclass(frozen=True)
class Place:
    """A noun for a place and the preposition that fits it best."""

    noun: Noun
    preposition: Pair


@dataclass(frozen=True)
class Verb:
    """The forms of a verb. Tuples of four are in the order of `morphology.PERSONS`.

    German: `particle` is the separable particle or empty; `present` excludes it, `infinitive` and `participle` include
    it. English: the forms exclude the particle, which follows the object.
    """

    particle: str
    present: tuple[str, str, str, str]
    infinitive: str
    participle: str
    perfect_with_sein: bool
    english_base: Words
    english_present: tuple[Words, Words, Words, Words]
    english_past: Words
    english_particle: Words


@dataclass(frozen=True)
class Auxiliary:
    """A verb that governs an infinitive: `werden` and the modals."""

    german: tuple[str, ...]
    english: tuple[Words, ...]


def _entries(text: str) -> list[str]:
    """Split a list of lexicon.toml into entries, one for each of the translations that `|` separates."""
    expanded = []
    for entry in text.split(";"):
        *fields, translations = entry.split()
        expanded += [" ".join([*fields, translation]) for translation in translations.split("|")]
    return expanded


def _english(text: str) -> Words:
    return tuple(text.split("_"))


def _noun(entry: str, gender: str) -> Noun:
    german, english = entry.split()
    nominative, _, oblique = german.partition("/")
    return Noun(gender, nominative, oblique or nominative, _english(english))


def _nouns(text: str, gender: str) -> list[Noun]:
    return [_noun(entry, gender) for entry in _entries(text)]


def _things(text: str, gender: str) -> Weighted[Noun]:
    nouns = _nouns(text, gender)
    heads = [replace(noun, may_head_compound=True) for noun in nouns[:COMPOUND_HEADS_PER_GENDER]]
    return zipfian(heads + nouns[COMPOUND_HEADS_PER_GENDER:])


def _places(text: str, preposition: str) -> list[Place]:
    genders = {gender[0]: gender for gender in GENDERS}
    (fitting,) = _pairs(preposition)
    return [Place(_noun(entry[2:], genders[entry[0]]), fitting) for entry in _entries(text)]


def _interleave(lists: Iterable[list[Item]]) -> list[Item]:
    """Merge lists by rank: the first items of all lists, then the second ones, and so on."""
    return [item for items in zip_longest(*lists) for item in items if item is not None]


def _pairs(*texts: str) -> list[Pair]:
    fields = (entry.split() for entry in chain.from_iterable(map(_entries, texts)))
    return [Pair(german, _english(english)) for german, english in fields]


def _verb(entry: str) -> Verb:
    german, participle, english, *past = entry.split()
    infinitive, _, changed_stem = german.partition(":")
    particle, _, bare = infinitive.rpartition("-")
    phrase, _, english_particle = english.partition("+")
    base, *preposition = phrase.split("_")
    past_form = past[0] if past else regular_past(base)
    plain = (base, *preposition)
    return Verb(
        particle=particle,
        present=present(bare, changed_stem or None),
        infinitive=particle + bare,
        participle=participle.removeprefix("*"),
        perfect_with_sein=participle.startswith("*"),
        english_base=plain,
        english_present=(plain, plain, (third_person(base), *preposition), plain),
        english_past=(past_form, *preposition),
        english_particle=(english_particle,) if english_particle else (),
    )


def _verbs(text: str) -> list[Verb]:
    return list(map(_verb, _entries(text)))


def _auxiliaries(text: str) -> list[Auxiliary]:
    sides = [[side.split() for side in entry.split(":")] for entry in _entries(text)]
    return [Auxiliary(tuple(german), tuple(map(_english, english))) for german, english in sides]


_WORDS = tomllib.loads((files(__package__) / "lexicon.toml").read_text(encoding="utf-8"))

THINGS = {gender: _things(text, gender) for gender, text in _WORDS["things"].items()}
PERSON_NOUNS = zipfian(_interleave(_nouns(text, gender) for gender, text in _WORDS["persons"].items()))
NAMES = zipfian(_WORDS["names"].split())
PLACES = zipfian(_interleave(_places(text, preposition) for preposition, text in _WORDS["places"].items()))
PREPOSITIONS = zipfian(_pairs(_WORDS["prepositions"]))
COMPOUND_MODIFIERS = zipfian(_pairs(_WORDS["compound_modifiers"]))
CONJUNCTIONS = zipfian(_pairs(_WORDS["conjunctions"]))
DEGREES = zipfian(_pairs(_WORDS["degrees"]))

_ADJECTIVES = _WORDS["adjectives"]
THING_ADJECTIVES = zipfian(_pairs(_ADJECTIVES["things"]))
PERSON_ADJECTIVES = zipfian(_pairs(_ADJECTIVES["persons"]))
PLACE_ADJECTIVES = zipfian(_pairs(_ADJECTIVES["places"]))

_ADVERBS = _WORDS["adverbs"]
THING_ADVERBS_PAST = zipfian(_pairs(_ADVERBS["past"], _ADVERBS["any_time"]))
THING_ADVERBS = zipfian(_pairs(_ADVERBS["not_past"], _ADVERBS["any_time"]))
PERSON_ADVERBS_PAST = zipfian(_pairs(_ADVERBS["past"], _ADVERBS["any_time"], _ADVERBS["persons"]))
PERSON_ADVERBS = zipfian(_pairs(_ADVERBS["not_past"], _ADVERBS["any_time"], _ADVERBS["persons"]))

SEIN = Verb(
    particle="",
    present=("bin", "bist", "ist", "sind"),
    infinitive="sein",
    participle="gewesen",
    perfect_with_sein=True,
    english_base=("be",),
    english_present=(("am",), ("are",), ("is",), ("are",)),
    english_past=("was",),  # third person only: in the grammar, subjects of `sein` are nouns
    english_particle=(),
)
HABEN_PRESENT = ("habe", "hast", "hat", "haben")

_VERBS = _WORDS["verbs"]
TRANSITIVE = zipfian(_verbs(_VERBS["transitive"]))
DITRANSITIVE = zipfian(_verbs(_VERBS["ditransitive"]))
PERSON_INTRANSITIVE = zipfian(_verbs(_VERBS["person_intransitive"]))
REPORTING = zipfian(_verbs(_VERBS["reporting"]))
POSITION = uniform(_verbs(_VERBS["position"]))
THING_INTRANSITIVE = zipfian(_verbs(_VERBS["thing_intransitive"]))
DATIVE = uniform(_verbs(_VERBS["dative"]))
LINKING = Weighted([SEIN, *_verbs(_VERBS["linking"])], [5, 1, 1, 1])

AUXILIARIES = _auxiliaries(_WORDS["auxiliaries"]["negatable"])
UNNEGATED_AUXILIARIES = _auxiliaries(_WORDS["auxiliaries"]["never_negated"])
PERSON_AUXILIARIES = _auxiliaries(_WORDS["auxiliaries"]["persons"])
