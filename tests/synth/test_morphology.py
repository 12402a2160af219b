import pytest

from relumt.synth.lexicon import Noun
from relumt.synth.morphology import compound, indefinite_article, present, regular_past, third_person
from relumt.synth.phrases import Pair, noun_phrase, prepositional_phrase

TABLE = Noun("masculine", "Tisch", "Tisch", ("table",), True)
LAMP = Noun("feminine", "Lampe", "Lampe", ("lamp",), True)
BED = Noun("neuter", "Bett", "Bett", ("bed",), True)
BOY = Noun("masculine", "Junge", "Jungen", ("boy",))
OLD = Pair("alt", ("old",))


def text(words):
    return " ".join(word for word, _ in words)


@pytest.mark.parametrize(
    ("stem", "case", "expected"),
    [
        ("der", "nominative", "der alte Tisch, die alte Lampe, das alte Bett"),
        ("der", "accusative", "den alten Tisch, die alte Lampe, das alte Bett"),
        ("der", "dative", "dem alten Tisch, der alten Lampe, dem alten Bett"),
        ("ein", "nominative", "ein alter Tisch, eine alte Lampe, ein altes Bett"),
        ("ein", "accusative", "einen alten Tisch, eine alte Lampe, ein altes Bett"),
        ("ein", "dative", "einem alten Tisch, einer alten Lampe, einem alten Bett"),
        ("dies", "nominative", "dieser alte Tisch, diese alte Lampe, dieses alte Bett"),
        ("dies", "accusative", "diesen alten Tisch, diese alte Lampe, dieses alte Bett"),
        ("unser", "nominative", "unser alter Tisch, unsere alte Lampe, unser altes Bett"),
        ("kein", "accusative", "keinen alten Tisch, keine alte Lampe, kein altes Bett"),
        ("mein", "dative", "meinem alten Tisch, meiner alten Lampe, meinem alten Bett"),
    ],
)
def test_noun_phrases_agree_in_case_and_gender(stem, case, expected):
    phrases = [noun_phrase(noun, case, Pair(stem, ("x",)), OLD) for noun in (TABLE, LAMP, BED)]
    assert ", ".join(text(phrase.german) for phrase in phrases) == expected


def test_an_adjective_in_e_keeps_one_e():
    tired = noun_phrase(BOY, "nominative", Pair("ein", ("a",)), Pair("müde", ("tired",)))
    assert text(tired.german) == "ein müder Junge"


def test_a_weak_noun_changes_outside_the_nominative():
    assert text(noun_phrase(BOY, "dative", Pair("der", ("the",))).german) == "dem Jungen"


def test_a_compound_is_one_german_word_linked_to_two_english_words():
    phrase = noun_phrase(LAMP, "nominative", Pair("ein", ("a",)), modifier=Pair("Garten", ("garden",)))
    assert (text(phrase.german), text(phrase.english)) == ("eine Gartenlampe", "a garden lamp")
    assert phrase.german[1][1] is phrase.english[1][1] is phrase.english[2][1]


@pytest.mark.parametrize(
    ("noun", "german", "english", "expected"),
    [
        (TABLE, "in", "in", "im Tisch"),
        (LAMP, "in", "in", "in der Lampe"),
        (TABLE, "auf", "on", "auf dem Tisch"),
    ],
)
def test_only_in_dem_contracts(noun, german, english, expected):
    phrase = prepositional_phrase(Pair(german, (english,)), noun_phrase(noun, "dative", Pair("der", ("the",))))
    assert text(phrase.german) == expected
    assert {link for _, link in phrase.german} == {link for _, link in phrase.english}


@pytest.mark.parametrize(
    ("infinitive", "changed", "expected"),
    [
        ("kaufen", None, "kaufe kaufst kauft kaufen"),
        ("sehen", "sieh", "sehe siehst sieht sehen"),
        ("finden", None, "finde findest findet finden"),
        ("öffnen", None, "öffne öffnest öffnet öffnen"),
        ("zeichnen", None, "zeichne zeichnest zeichnet zeichnen"),
        ("leugnen", None, "leugne leugnest leugnet leugnen"),
        ("träumen", None, "träume träumst träumt träumen"),
        ("schützen", None, "schütze schützt schützt schützen"),
        ("vergessen", "vergiss", "vergesse vergisst vergisst vergessen"),
        ("lassen", "läss", "lasse lässt lässt lassen"),
        ("sammeln", None, "sammle sammelst sammelt sammeln"),
        ("bewundern", None, "bewundere bewunderst bewundert bewundern"),
        ("verlieren", None, "verliere verlierst verliert verlieren"),
    ],
)
def test_present(infinitive, changed, expected):
    assert " ".join(present(infinitive, changed)) == expected


@pytest.mark.parametrize(
    ("base", "third", "past"),
    [("need", "needs", "needed"), ("carry", "carries", "carried"), ("push", "pushes", "pushed"),
     ("use", "uses", "used"), ("destroy", "destroys", "destroyed"), ("bless", "blesses", "blessed")],
)  # fmt: skip
def test_english_verbs(base, third, past):
    assert (third_person(base), regular_past(base)) == (third, past)


def test_indefinite_article():
    assert [indefinite_article(word) for word in ("old", "umbrella", "key")] == ["an", "an", "a"]


def test_the_head_of_a_compound_is_lowercased():
    assert compound("Küchen", "Uhr") == "Küchenuhr"
