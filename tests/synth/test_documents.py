from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.synth import lexicon
from relumt.synth.documents import documents
from relumt.synth.morphology import GENDERS, PRONOUNS

seeds = st.integers(min_value=0, max_value=2**32)
GENDER_BY_NOUN = {noun.nominative: gender for gender in GENDERS for noun in lexicon.THINGS[gender].items} | {
    modifier.german + noun.nominative.lower(): gender
    for gender in GENDERS
    for noun in lexicon.THINGS[gender].items
    for modifier in lexicon.COMPOUND_MODIFIERS.items
    if noun.may_head_compound
}


@pytest.fixture(scope="module")
def many():
    return list(documents(Random("many"), 1500))


def things(sentence):
    """Return the genders of the things that a sentence mentions, read from its words."""
    return [GENDER_BY_NOUN[token] for token in sentence.german if token in GENDER_BY_NOUN]


@given(seeds)
@settings(max_examples=40)
def test_every_pronoun_refers_to_the_most_recent_thing_that_was_a_subject(seed):
    for document in documents(Random(seed), 3):
        topic = None
        for sentence, kind in zip(document.sentences, document.kinds, strict=True):
            if kind == "I":
                (topic,) = things(sentence)
            if kind == "P":
                position, case = sentence.pronoun
                assert sentence.german[position] == PRONOUNS[case][topic]
                assert things(sentence) == []


@given(seeds)
@settings(max_examples=40)
def test_a_distractor_of_another_gender_is_between_topic_and_pronoun(seed):
    for document in documents(Random(seed), 3):
        topic, has_distractor = None, False
        for sentence, kind in zip(document.sentences, document.kinds, strict=True):
            if kind == "I":
                (topic,), has_distractor = things(sentence), False
            if kind == "D":
                assert things(sentence) != [topic]
                assert len(things(sentence)) == 1
                has_distractor = True
            if kind == "P":
                assert has_distractor


def test_documents_depend_on_the_seed_only():
    assert list(documents(Random(1), 7)) == list(documents(Random(1), 7))
    assert list(documents(Random(1), 7)) != list(documents(Random(2), 7))


def test_fewer_documents_are_the_first_ones():
    assert list(documents(Random(5), 12))[:7] == list(documents(Random(5), 7))


def test_sizes(many):
    assert len(many) == 1500
    assert {len(document.sentences) for document in many} == {5, 6, 7, 8}


def test_pronouns_are_balanced_exactly_in_each_case(many):
    forms = Counter(
        (sentence.pronoun.case, sentence.german[sentence.pronoun.position])
        for document in many
        for sentence in document.sentences
        if sentence.pronoun
    )
    for case in ("nominative", "accusative"):
        counts = {forms[case, form] for form in PRONOUNS[case].values()}
        assert len(counts) == 1
        assert counts.pop() > 300


def test_the_english_sentence_does_not_reveal_the_gender(many):
    by_source = Counter()
    for document in many:
        for sentence, gender in zip(document.sentences, document.genders, strict=True):
            if sentence.pronoun:
                by_source[sentence.english, gender] += 1
    for source, _ in list(by_source):
        assert len({by_source[source, gender] for gender in GENDERS}) == 1, source


def test_the_genders_of_topics_and_distractors_are_balanced(many):
    pairs = Counter()
    for document in many:
        topic = None
        for kind, gender in zip(document.kinds, document.genders, strict=True):
            topic = gender if kind == "I" else topic
            pairs[kind, topic, gender] += 1
    assert len({pairs["I", gender, gender] for gender in GENDERS}) == 1
    distractors = [pairs["D", topic, other] for topic in GENDERS for other in GENDERS if topic != other]
    assert min(distractors) > 0.8 * max(distractors)
    assert all(pairs["D", gender, gender] == 0 for gender in GENDERS)


def test_the_topics_of_a_document_differ_in_gender(many):
    topics = [
        [gender for kind, gender in zip(document.kinds, document.genders, strict=True) if kind == "I"]
        for document in many
    ]
    assert {len(genders) for genders in topics} == {1, 2}
    assert all(len(set(genders)) == len(genders) for genders in topics)
