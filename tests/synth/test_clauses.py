import pytest

from relumt.synth import lexicon
from relumt.synth.clauses import (
    Clause,
    fronted_clause,
    main_clause,
    negation,
    perfect_tense,
    present_tense,
    subordinate_clause,
    with_auxiliary,
)
from relumt.synth.lexicon import AUXILIARIES, PERSON_AUXILIARIES, Noun, Pair
from relumt.synth.morphology import THIRD
from relumt.synth.phrases import EMPTY, Subject, linked, noun_phrase, pair, pronoun

ANNA = Subject(linked(("Anna",), ("Anna",)), THIRD)
I = Subject(linked(("ich",), ("I",)), 0)  # noqa: E741
TABLE = Noun("masculine", "Tisch", "Tisch", ("table",))
WILL, CAN, *_ = AUXILIARIES
_, WOULD_LIKE = PERSON_AUXILIARIES
TODAY = pair(Pair("heute", ("today",)))
THAT = linked(("dass",), ("that",))


def verb(infinitive):
    lists = (lexicon.TRANSITIVE, lexicon.DITRANSITIVE, lexicon.PERSON_INTRANSITIVE)
    return next(verb for verbs in lists for verb in verbs.items if verb.infinitive == infinitive)


def table(case):
    return noun_phrase(TABLE, case, Pair("der", ("the",)))


def text(phrase):
    return " | ".join(" ".join(word for word, _ in side) for side in phrase)


@pytest.mark.parametrize(
    ("group", "main", "subordinate"),
    [
        (
            present_tense(verb("wegräumen"), THIRD, EMPTY),
            "Anna räumt heute den Tisch weg | Anna puts the table away today",
            "dass Anna heute den Tisch wegräumt | that Anna puts the table away today",
        ),
        (
            perfect_tense(verb("wegräumen"), THIRD, EMPTY),
            "Anna hat heute den Tisch weggeräumt | Anna put the table away today",
            "dass Anna heute den Tisch weggeräumt hat | that Anna put the table away today",
        ),
        (
            with_auxiliary(WILL, verb("ansehen"), THIRD, EMPTY),
            "Anna wird heute den Tisch ansehen | Anna will look at the table today",
            "dass Anna heute den Tisch ansehen wird | that Anna will look at the table today",
        ),
        (
            with_auxiliary(WOULD_LIKE, verb("kaufen"), THIRD, EMPTY),
            "Anna möchte heute den Tisch kaufen | Anna would like to buy the table today",
            "dass Anna heute den Tisch kaufen möchte | that Anna would like to buy the table today",
        ),
    ],
)
def test_word_order_with_each_tense(group, main, subordinate):
    clause = Clause(ANNA, group, adverb=TODAY, object=table("accusative"))
    assert text(main_clause(clause)) == main
    assert text(subordinate_clause(THAT, clause)) == subordinate


def test_a_fronted_adverb_puts_the_german_verb_before_its_subject():
    clause = Clause(ANNA, present_tense(verb("abholen"), THIRD, EMPTY), object=table("accusative"))
    assert text(fronted_clause(TODAY, clause)) == "heute holt Anna den Tisch ab | today Anna picks the table up"


def test_a_pronoun_object_stands_before_the_adverb():
    clause = Clause(
        I, perfect_tense(verb("verkaufen"), 0, EMPTY), pronoun=pronoun("accusative", "masculine"), adverb=TODAY
    )
    assert text(main_clause(clause)) == "ich habe ihn heute verkauft | I sold it today"


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (present_tense, "Anna kauft den Tisch nicht | Anna does not buy the table"),
        (perfect_tense, "Anna hat den Tisch nicht gekauft | Anna did not buy the table"),
    ],
)
def test_negation(build, expected):
    not_ = negation()
    clause = Clause(ANNA, build(verb("kaufen"), THIRD, not_), object=table("accusative"), negation=not_)
    assert text(main_clause(clause)) == expected


def test_negation_with_a_modal_and_a_recipient():
    not_ = negation()
    recipient = noun_phrase(Noun("feminine", "Frau", "Frau", ("woman",)), "dative", Pair("mein", ("my",)))
    clause = Clause(
        ANNA,
        with_auxiliary(CAN, verb("zurückgeben"), THIRD, not_),
        recipient=recipient,
        object=table("accusative"),
        negation=not_,
    )
    expected = "Anna kann meiner Frau den Tisch nicht zurückgeben | Anna can not give the table back my woman"
    assert text(main_clause(clause)) == expected


def test_the_perfect_of_a_verb_of_motion_takes_sein():
    clause = Clause(I, perfect_tense(verb("aufstehen"), 0, EMPTY))
    assert text(main_clause(clause)) == "ich bin aufgestanden | I got up"


def test_both_parts_of_a_separable_verb_are_linked_to_both_english_parts():
    clause = Clause(ANNA, present_tense(verb("wegräumen"), THIRD, EMPTY), object=table("accusative"))
    german, english = main_clause(clause)
    links = dict((*german, *english))
    assert links["räumt"] is links["weg"] is links["puts"] is links["away"]
    assert links["den"] is links["the"] is not links["räumt"]
