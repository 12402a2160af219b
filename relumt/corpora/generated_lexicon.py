"""The words of the generated corpus with their inflected forms, ready to sample from; lexicon.toml lists them.

Everything except `wir`/`we` is singular, because the grammar has no plural nouns.
"""

import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import accumulate, product, zip_longest
from random import Random
from typing import Generic, NamedTuple, TypeVar

Words = tuple[str, ...]
Item = TypeVar("Item")

GENDERS = ("masculine", "feminine", "neuter")
THIRD = 2
"""Index of the third person in every table of verb forms: ich, du, third person, wir."""

PRONOUNS = {
    case: dict(zip(GENDERS, forms.split(), strict=True))
    for case, forms in (("nominative", "er sie es"), ("accusative", "ihn sie es"))
}

COMPOUND_HEADS_PER_GENDER = 20
"""How many of the most frequent nouns of each gender also occur as heads of compounds."""

# Weight of rank r: 1 / (r + ZIPF_SHIFT) ** ZIPF_EXPONENT. Flatter than in natural text (shift 0, exponent 1), so that
# sentences rarely recur although they are short.
ZIPF_SHIFT, ZIPF_EXPONENT = 4.0, 0.8


class Weighted(Generic[Item]):
    """Items with weights, by default equal ones. Python guarantees the values of `Random.random` across versions."""

    def __init__(self, items: Iterable[Item], weights: Sequence[float] | None = None):
        self.items = tuple(items)
        self._cumulative = tuple(accumulate(weights or [1.0] * len(self.items)))

    def draw(self, rng: Random) -> Item:
        """Return a random item, with probability proportional to its weight."""
        return rng.choices(self.items, cum_weights=self._cumulative)[0]  # calls `random` once


def zipfian(items: Sequence[Item]) -> Weighted[Item]:
    """Weight items that are in order of decreasing frequency."""
    return Weighted(items, [(rank + ZIPF_SHIFT) ** -ZIPF_EXPONENT for rank in range(1, len(items) + 1)])


class Noun(NamedTuple):
    """A noun: its nominative, its form in the other cases (different for weak nouns only) and its English words."""

    gender: str
    nominative: str
    oblique: str
    english: Words
    may_head_compound: bool = False


class Pair(NamedTuple):
    """An uninflected German word (or an adjective's stem) and its English words."""

    german: str
    english: Words


class Verb(NamedTuple):
    """The forms of a verb. Tuples of four have a form for ich, du, the third person and wir.

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
    english_particle: Words = ()


Auxiliary = tuple[Words, tuple[Words, ...]]
"""The German and English forms of a verb that governs an infinitive: `werden` and the modals."""


def _paradigm(endings: str) -> dict[tuple[str, str], str]:
    """Parse nine endings, ordered by case and then gender; `-` stands for no ending."""
    keys = product(("nominative", "accusative", "dative"), GENDERS)
    return dict(zip(keys, (ending.strip("-") for ending in endings.split()), strict=True))


_DER, _DIES = _paradigm("der die das  den die das  dem der dem"), _paradigm("er e es  en e es  em er em")
_EIN = _paradigm("- e -  en e -  em er em")
_WEAK_ADJECTIVE, _MIXED_ADJECTIVE = _paradigm("e e e  en e e  en en en"), _paradigm("er e es  en e es  en en en")


def determiner(stem: str, case: str, gender: str) -> str:
    """Inflect `der`, `dies` or a stem like `ein` (`mein`, `unser`, ...)."""
    if stem == "der":
        return _DER[case, gender]
    return stem + (_DIES if stem == "dies" else _EIN)[case, gender]


def adjective(stem: str, determiner_stem: str, case: str, gender: str) -> str:
    """Return the attributive form of an adjective after the determiner `determiner_stem`."""
    endings = _WEAK_ADJECTIVE if determiner_stem in ("der", "dies") else _MIXED_ADJECTIVE
    return stem.removesuffix("e") + endings[case, gender]


def _entries(*texts: str) -> list[list[str]]:
    """Return the fields of each entry of lists in lexicon.toml, an entry for each translation that `|` separates."""
    entries = (entry.split() for text in texts for entry in text.split(";"))
    return [[*fields, english] for *fields, translations in entries for english in translations.split("|")]


def _english(text: str) -> Words:
    return tuple(text.split("_"))


def _noun(gender: str, german: str, english: str, may_head_compound: bool = False) -> Noun:
    nominative, _, oblique = german.partition("/")
    return Noun(gender, nominative, oblique or nominative, _english(english), may_head_compound)


def _nouns(text: str, gender: str, num_heads: int = 0) -> list[Noun]:
    return [_noun(gender, german, english, i < num_heads) for i, (german, english) in enumerate(_entries(text))]


def _places(text: str, preposition: str) -> list[tuple[Noun, Pair]]:
    genders = {gender[0]: gender for gender in GENDERS}
    fitting = pairs(preposition)[0]
    return [(_noun(genders[letter], german, english), fitting) for letter, german, english in _entries(text)]


def _interleave(lists: Iterable[list[Item]]) -> list[Item]:
    """Merge lists by rank: the first items of all lists, then the second ones, and so on."""
    return [item for items in zip_longest(*lists) for item in items if item is not None]


def pairs(*texts: str) -> list[Pair]:
    """Return the entries of lists of words and their translations."""
    return [Pair(german, _english(english)) for german, english in _entries(*texts)]


def _verb(german: str, participle: str, english: str, particle: str = "", english_particle: str = "") -> Verb:
    first, second, third, plural = german.split(",")
    base, third_person, past = map(_english, english.split(","))
    german_forms = (first, second, third, plural), particle + plural, participle.strip("*"), participle.startswith("*")
    english_forms = base, (base, base, third_person, base), past
    return Verb(particle, *german_forms, *english_forms, tuple(english_particle.split()))


def _verbs(text: str) -> list[Verb]:
    return [_verb(*entry.split()) for entry in text.split(";")]


def _auxiliaries(text: str) -> list[Auxiliary]:
    entries = [[side.split() for side in entry.split(":")] for entry in text.split(";")]
    return [(tuple(german), tuple(map(_english, english))) for german, english in entries]


_WORDS = tomllib.loads((files(__package__) / "lexicon.toml").read_text(encoding="utf-8"))
_ADVERBS, _VERBS = _WORDS["adverbs"], _WORDS["verbs"]

THINGS = {gender: zipfian(_nouns(text, gender, COMPOUND_HEADS_PER_GENDER)) for gender, text in _WORDS["things"].items()}
PERSON_NOUNS = zipfian(_interleave(_nouns(text, gender) for gender, text in _WORDS["persons"].items()))
NAMES = zipfian(_WORDS["names"].split())
PLACES = zipfian(_interleave(_places(text, preposition) for preposition, text in _WORDS["places"].items()))
PREPOSITIONS, COMPOUND_MODIFIERS, CONJUNCTIONS, DEGREES = (
    zipfian(pairs(_WORDS[name])) for name in ("prepositions", "compound_modifiers", "conjunctions", "degrees")
)
THING_ADJECTIVES, PERSON_ADJECTIVES, PLACE_ADJECTIVES = map(zipfian, map(pairs, _WORDS["adjectives"].values()))
_PAST, _NOT_PAST = ((_ADVERBS[time], _ADVERBS["any_time"]) for time in ("past", "not_past"))
THING_ADVERBS_PAST, THING_ADVERBS = (zipfian(pairs(*lists)) for lists in (_PAST, _NOT_PAST))
PERSON_ADVERBS_PAST, PERSON_ADVERBS = (zipfian(pairs(*lists, _ADVERBS["persons"])) for lists in (_PAST, _NOT_PAST))

TO_BE = (("am",), ("are",), ("is",), ("are",))
# "was": in the grammar, subjects of `sein` are nouns.
SEIN = Verb("", ("bin", "bist", "ist", "sind"), "sein", "gewesen", True, ("be",), TO_BE, ("was",))
HABEN_PRESENT = ("habe", "hast", "hat", "haben")
TRANSITIVE, DITRANSITIVE = zipfian(_verbs(_VERBS["transitive"])), zipfian(_verbs(_VERBS["ditransitive"]))
PERSON_INTRANSITIVE, REPORTING = zipfian(_verbs(_VERBS["person_intransitive"])), zipfian(_verbs(_VERBS["reporting"]))
THING_INTRANSITIVE = zipfian(_verbs(_VERBS["thing_intransitive"]))
POSITION, DATIVE = Weighted(_verbs(_VERBS["position"])), Weighted(_verbs(_VERBS["dative"]))
LINKING = Weighted([SEIN, *_verbs(_VERBS["linking"])], [5, 1, 1, 1])
AUXILIARIES, UNNEGATED_AUXILIARIES, PERSON_AUXILIARIES = map(_auxiliaries, _WORDS["auxiliaries"].values())
