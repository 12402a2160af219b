"""Inflection: German determiners, adjectives and present tense; English third person, past and article.

Everything except `wir`/`we` is singular, because the grammar has no plural nouns.
"""

import re

GENDERS = ("masculine", "feminine", "neuter")
CASES = ("nominative", "accusative", "dative")
PERSONS = ("ich", "du", "third", "wir")  # the order of every table of verb forms
THIRD = PERSONS.index("third")

# Stems that take -est and -et: those in t or d, and those in n or m after certain consonants.
_NEEDS_LINKING_E = re.compile(r"([td]|[^aeiouäöülrhnm][nm]|ch[nm])$")

PRONOUNS = {
    "nominative": {"masculine": "er", "feminine": "sie", "neuter": "es"},
    "accusative": {"masculine": "ihn", "feminine": "sie", "neuter": "es"},
}

_BY_CASE_AND_GENDER = [(case, gender) for case in CASES for gender in GENDERS]


def _paradigm(endings: str) -> dict[tuple[str, str], str]:
    """Parse nine endings, ordered by case and then gender, into a dict; `-` stands for no ending."""
    filled = [ending.replace("-", "") for ending in endings.split()]
    return dict(zip(_BY_CASE_AND_GENDER, filled, strict=True))


_DEFINITE = _paradigm("der die das  den die das  dem der dem")
_STRONG_DETERMINER = _paradigm("er e es  en e es  em er em")
_MIXED_DETERMINER = _paradigm("- e -  en e -  em er em")
_WEAK_ADJECTIVE = _paradigm("e e e  en e e  en en en")
_MIXED_ADJECTIVE = _paradigm("er e es  en e es  en en en")


def determiner(stem: str, case: str, gender: str) -> str:
    """Inflect `der`, `dies` (which has the endings of `der`) or a stem like `ein` (`mein`, `unser`, ...)."""
    if stem == "der":
        return _DEFINITE[case, gender]
    endings = _STRONG_DETERMINER if stem == "dies" else _MIXED_DETERMINER
    return stem + endings[case, gender]


def adjective(stem: str, determiner_stem: str, case: str, gender: str) -> str:
    """Return the attributive form of an adjective after the determiner `determiner_stem`."""
    endings = _WEAK_ADJECTIVE if determiner_stem in ("der", "dies") else _MIXED_ADJECTIVE
    return stem.removesuffix("e") + endings[case, gender]


def present(infinitive: str, changed_stem: str | None) -> tuple[str, str, str, str]:
    """Return the present forms, in the order of PERSONS, of an infinitive without its separable particle.

    `changed_stem` is the stem of the second and third person if its vowel changes (`sieh` for `sehen`).
    """
    weakened = infinitive.endswith(("eln", "ern"))
    stem = infinitive[:-1] if weakened else infinitive[:-2]
    first = stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    narrow = changed_stem or stem
    linking = "e" if changed_stem is None and _NEEDS_LINKING_E.search(stem) else ""
    second = "t" if narrow.endswith(("s", "ß", "z", "x")) else f"{linking}st"
    return first, narrow + second, f"{narrow}{linking}t", infinitive


def compound(modifier: str, head: str) -> str:
    """Join two German words into one: `Garten` and `Tür` become `Gartentür`."""
    return modifier + head.lower()


def third_person(base: str) -> str:
    """Return the English third person singular: `carries`, `watches`, `sells`."""
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def regular_past(base: str) -> str:
    """Return the English past of a regular verb: `carried`, `moved`, `watched`."""
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + "ed"


def indefinite_article(next_word: str) -> str:
    """Return `a` or `an`, by the first letter of the next word. The lexicon has no exceptions to this rule."""
    return "an" if next_word[0] in "aeiouAEIOU" else "a"
