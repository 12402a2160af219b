"""The lexicon: the tables of `words` parsed into entries that carry their inflected forms, ready to draw."""

from dataclasses import dataclass, replace

from relumt.synth import words
from relumt.synth.morphology import GENDERS, present, regular_past, third_person
from relumt.synth.sampling import Weighted, uniform, zipfian

Words = tuple[str, ...]

# So many of the most frequent nouns of each gender also occur as heads of compounds.
COMPOUND_HEADS_PER_GENDER = 20


@dataclass(frozen=True)
class Noun:
    """A noun with its nominative, the form of the other cases (the same but for weak nouns), and English."""

    gender: str
    nominative: str
    oblique: str
    english: Words
    may_head_compound: bool = False

    def form(self, case: str) -> str:
        """The noun in a case."""
        return self.nominative if case == "nominative" else self.oblique


@dataclass(frozen=True)
class Pair:
    """An uninflected German word (or an adjective's stem) and its English."""

    german: str
    english: Words


@dataclass(frozen=True)
class Place:
    """A noun of a place and the preposition that fits it best."""

    noun: Noun
    preposition: Pair


@dataclass(frozen=True)
class Verb:
    """A verb's forms; tuples of four are in the order of `morphology.PERSONS`.

    German: `particle` is the separable one or empty, `present` comes without it, `infinitive` and
    `participle` with it. English: each form is its words without the particle, which follows the object.
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

    german: tuple[str, str, str, str]
    english: tuple[Words, Words, Words, Words]


def _entries(table: str) -> list[str]:
    """The table's entries, one for each of the translations that `|` separates."""
    expanded = []
    for entry in table.split(";"):
        *fields, translations = entry.split()
        expanded += [" ".join([*fields, translation]) for translation in translations.split("|")]
    return expanded


def _english(text: str) -> Words:
    return tuple(text.split("_"))


def _noun(entry: str, gender: str) -> Noun:
    german, english = entry.split()
    nominative, _, oblique = german.partition("/")
    return Noun(gender, nominative, oblique or nominative, _english(english))


def _things(table: str, gender: str) -> Weighted[Noun]:
    nouns = [_noun(entry, gender) for entry in _entries(table)]
    heads = [replace(noun, may_head_compound=True) for noun in nouns[:COMPOUND_HEADS_PER_GENDER]]
    return zipfian(heads + nouns[COMPOUND_HEADS_PER_GENDER:])


def _interleaved_persons() -> Weighted[Noun]:
    """Persons of all genders; within each gender the frequency falls with the rank in its table."""
    tables = (words.PERSONS_MASCULINE, words.PERSONS_FEMININE, words.PERSONS_NEUTER)
    ranked = [
        (rank, _noun(entry, gender))
        for table, gender in zip(tables, GENDERS, strict=True)
        for rank, entry in enumerate(_entries(table))
    ]
    return zipfian([noun for _, noun in sorted(ranked, key=lambda pair: pair[0])])


def _places() -> Weighted[Place]:
    genders = {gender[0]: gender for gender in GENDERS}
    ranked = [
        (rank, Place(_noun(entry[2:], genders[entry[0]]), Pair(german, (english,))))
        for (german, english), table in words.PLACES.items()
        for rank, entry in enumerate(_entries(table))
    ]
    return zipfian([place for _, place in sorted(ranked, key=lambda pair: pair[0])])


def _pairs(table: str) -> list[Pair]:
    return [Pair(german, _english(english)) for german, english in (entry.split() for entry in _entries(table))]


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


def _verbs(table: str) -> list[Verb]:
    return [_verb(entry) for entry in _entries(table)]


def _auxiliaries(table: str) -> list[Auxiliary]:
    sides = [[side.split() for side in entry.split(":")] for entry in _entries(table)]
    return [Auxiliary(tuple(german), tuple(_english(form) for form in english)) for german, english in sides]


THINGS = {
    "masculine": _things(words.THINGS_MASCULINE, "masculine"),
    "feminine": _things(words.THINGS_FEMININE, "feminine"),
    "neuter": _things(words.THINGS_NEUTER, "neuter"),
}
PERSON_NOUNS = _interleaved_persons()
NAMES = zipfian(words.NAMES.split())
PLACES = _places()
PREPOSITIONS = zipfian(_pairs(words.PREPOSITIONS))
COMPOUND_MODIFIERS = zipfian(_pairs(words.COMPOUND_MODIFIERS))

THING_ADJECTIVES = zipfian(_pairs(words.THING_ADJECTIVES))
PERSON_ADJECTIVES = zipfian(_pairs(words.PERSON_ADJECTIVES))
PLACE_ADJECTIVES = zipfian(_pairs(words.PLACE_ADJECTIVES))
DEGREES = zipfian(_pairs(words.DEGREES))
THING_ADVERBS_PAST = zipfian(_pairs(words.ADVERBS_PAST) + _pairs(words.ADVERBS_ANY_TIME))
THING_ADVERBS = zipfian(_pairs(words.ADVERBS_NOT_PAST) + _pairs(words.ADVERBS_ANY_TIME))
PERSON_ADVERBS_PAST = zipfian([*THING_ADVERBS_PAST.items, *_pairs(words.ADVERBS_OF_PERSONS)])
PERSON_ADVERBS = zipfian([*THING_ADVERBS.items, *_pairs(words.ADVERBS_OF_PERSONS)])
CONJUNCTIONS = zipfian(_pairs(words.CONJUNCTIONS))

SEIN = Verb(
    particle="",
    present=("bin", "bist", "ist", "sind"),
    infinitive="sein",
    participle="gewesen",
    perfect_with_sein=True,
    english_base=("be",),
    english_present=(("am",), ("are",), ("is",), ("are",)),
    english_past=("was",),  # only ever with a third person: the grammar's subjects of `sein` are nouns
    english_particle=(),
)
HABEN_PRESENT = ("habe", "hast", "hat", "haben")

TRANSITIVE = zipfian(_verbs(words.TRANSITIVE))
DITRANSITIVE = zipfian(_verbs(words.DITRANSITIVE))
PERSON_INTRANSITIVE = zipfian(_verbs(words.PERSON_INTRANSITIVE))
REPORTING = zipfian(_verbs(words.REPORTING))
POSITION = uniform(_verbs(words.POSITION))
THING_INTRANSITIVE = zipfian(_verbs(words.THING_INTRANSITIVE))
DATIVE = uniform(_verbs(words.DATIVE))
LINKING = Weighted([SEIN, *_verbs(words.LINKING)], [5, 1, 1, 1])

AUXILIARIES = _auxiliaries(words.AUXILIARIES)
AUXILIARIES_NEVER_NEGATED = _auxiliaries(words.AUXILIARIES_NEVER_NEGATED)
AUXILIARIES_OF_PERSONS = _auxiliaries(words.AUXILIARIES_OF_PERSONS)
