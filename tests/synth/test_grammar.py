from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relumt.synth.grammar import Sentence, distractor, filler, introduction, pronoun_object, pronoun_subject
from relumt.synth.morphology import GENDERS, PRONOUNS

seeds = st.integers(min_value=0, max_value=2**32)
genders = st.sampled_from(GENDERS)
MAKERS = {
    "introduction": lambda rng, gender: introduction(rng, gender),
    "distractor": lambda rng, gender: distractor(rng, gender),
    "pronoun_subject": lambda rng, gender: pronoun_subject(rng).in_gender(gender),
    "pronoun_object": lambda rng, gender: pronoun_object(rng).in_gender(gender),
    "filler": lambda rng, gender: filler(rng),
}
makers = st.sampled_from(sorted(MAKERS))


@given(seeds, genders, makers)
def test_alignments_are_in_range_and_cover_all_content_words(seed, gender, maker):
    sentence = MAKERS[maker](Random(seed), gender)
    for german, english in sentence.alignment:
        assert 0 <= german < len(sentence.german)
        assert 0 <= english < len(sentence.english)
    unaligned_german = set(range(len(sentence.german))) - {german for german, _ in sentence.alignment}
    unaligned_english = set(range(len(sentence.english))) - {english for _, english in sentence.alignment}
    assert {sentence.german[index] for index in unaligned_german} <= {",", "dass"}
    assert {sentence.english[index] for index in unaligned_english} <= {"to"}
    assert sorted(set(sentence.alignment)) == list(sentence.alignment)


@given(seeds, genders, makers)
def test_sentences_are_tokens_that_end_in_a_period(seed, gender, maker):
    sentence = MAKERS[maker](Random(seed), gender)
    for tokens in (sentence.german, sentence.english):
        assert tokens[-1] == "."
        assert "." not in tokens[:-1]
        assert all(token and token == "".join(token.split()) for token in tokens)
        assert 3 <= len(tokens) <= 24


@given(seeds, genders, makers)
def test_it_and_its_german_forms_occur_in_pronoun_sentences_only(seed, gender, maker):
    sentence = MAKERS[maker](Random(seed), gender)
    forms = {form for by_gender in PRONOUNS.values() for form in by_gender.values()}
    once = 1 if maker.startswith("pronoun") else 0
    assert sentence.english.count("it") == once
    assert sum(token in forms for token in sentence.german) == once


@given(seeds, st.sampled_from(["pronoun_subject", "pronoun_object"]))
def test_the_gender_changes_only_the_pronoun(seed, maker):
    case = {"pronoun_subject": "nominative", "pronoun_object": "accusative"}[maker]
    masculine, feminine, neuter = (MAKERS[maker](Random(seed), gender) for gender in GENDERS)
    position = masculine.pronoun.position
    assert masculine.english == feminine.english == neuter.english
    assert [s.german[position] for s in (masculine, feminine, neuter)] == list(PRONOUNS[case].values())
    for other in (feminine, neuter):
        assert other.german[:position] == masculine.german[:position]
        assert other.german[position + 1 :] == masculine.german[position + 1 :]
    assert (position, masculine.english.index("it")) in masculine.alignment


def test_a_sentence_without_a_pronoun_has_no_gender_to_set():
    with pytest.raises(ValueError, match=r"no pronoun in 'Anna lacht \.'"):
        Sentence(("Anna", "lacht", "."), ("Anna", "laughs", "."), ((0, 0), (1, 1), (2, 2)), None).in_gender("neuter")


@given(seeds)
def test_indefinite_objects_are_not_negated_with_nicht(seed):
    german = distractor(Random(seed), "masculine").german
    if "nicht" in german:
        before = german[: german.index("nicht")]
        assert not {"einen", "keinen"} & set(before)
