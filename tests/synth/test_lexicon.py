from itertools import chain

from relumt.synth import lexicon
from relumt.synth.morphology import GENDERS

VERB_LISTS = (lexicon.TRANSITIVE, lexicon.DITRANSITIVE, lexicon.PERSON_INTRANSITIVE, lexicon.REPORTING)
NOUNS = [
    *chain.from_iterable(lexicon.THINGS[gender].items for gender in GENDERS),
    *lexicon.PERSON_NOUNS.items,
    *(place.noun for place in lexicon.PLACES.items),
]
WORDS_AFTER_AN_ARTICLE = [
    *(noun.english for noun in NOUNS),
    *(entry.english for entry in lexicon.COMPOUND_MODIFIERS.items),
    *(entry.english for entry in lexicon.THING_ADJECTIVES.items),
    *(entry.english for entry in lexicon.PERSON_ADJECTIVES.items),
    *(entry.english for entry in lexicon.PLACE_ADJECTIVES.items),
]


def test_a_noun_has_one_gender():
    genders = {(noun.nominative, noun.gender) for noun in NOUNS}
    assert len({word for word, _ in genders}) == len(genders)


def test_things_are_neither_persons_nor_places():
    things = {noun.nominative for gender in GENDERS for noun in lexicon.THINGS[gender].items}
    others = {noun.nominative for noun in lexicon.PERSON_NOUNS.items}
    others |= {place.noun.nominative for place in lexicon.PLACES.items}
    assert things.isdisjoint(others)


def test_no_noun_is_a_compound_of_the_lexicon():
    compounds = {
        modifier.german + noun.nominative.lower() for modifier in lexicon.COMPOUND_MODIFIERS.items for noun in NOUNS
    }
    assert compounds.isdisjoint(noun.nominative for noun in NOUNS)


def test_the_three_genders_have_equally_many_things():
    sizes = {gender: len(lexicon.THINGS[gender].items) for gender in GENDERS}
    assert len(set(sizes.values())) == 1, sizes
    heads = {gender: sum(noun.may_head_compound for noun in lexicon.THINGS[gender].items) for gender in GENDERS}
    assert set(heads.values()) == {lexicon.COMPOUND_HEADS_PER_GENDER}


def test_the_first_letter_of_every_english_word_determines_the_article():
    misleading = ("uni", "use", "usu", "eu", "one", "once", "hour", "hono", "hones", "heir")
    assert [words for words in WORDS_AFTER_AN_ARTICLE if words[0].lower().startswith(misleading)] == []


def test_no_list_has_duplicates():
    lists = [
        *VERB_LISTS,
        lexicon.PERSON_NOUNS,
        lexicon.PLACES,
        lexicon.THING_ADJECTIVES,
        lexicon.PERSON_ADJECTIVES,
        lexicon.DEGREES,
        lexicon.PERSON_ADVERBS,
        lexicon.CONJUNCTIONS,
    ]
    for weighted in lists:
        assert len(set(weighted.items)) == len(weighted.items)


def test_a_bar_separates_translations_of_one_word():
    english = [entry.english for entry in lexicon.THING_ADJECTIVES.items if entry.german == "groß"]
    assert english == [("big",), ("large",)]


def test_a_separable_verb_is_parsed_into_its_forms():
    verb = next(verb for verb in lexicon.TRANSITIVE.items if verb.infinitive == "mitnehmen")
    assert verb == lexicon.Verb(
        particle="mit",
        present=("nehme", "nimmst", "nimmt", "nehmen"),
        infinitive="mitnehmen",
        participle="mitgenommen",
        perfect_with_sein=False,
        english_base=("take",),
        english_present=(("take",), ("take",), ("takes",), ("take",)),
        english_past=("took",),
        english_particle=("along",),
    )


def test_perfect_with_sein_and_english_prepositions_are_parsed():
    waking = next(verb for verb in lexicon.PERSON_INTRANSITIVE.items if verb.infinitive == "aufwachen")
    assert waking.perfect_with_sein
    looking = next(verb for verb in lexicon.TRANSITIVE.items if verb.infinitive == "suchen")
    assert looking.english_present[2] == ("looks", "for")
    assert looking.english_past == ("looked", "for")
    assert looking.english_particle == ()
