"""The cached tokenizer and the normalizer give what sacremoses gives."""

from functools import cache

import pytest
from hypothesis import given, settings
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from relumt.prep.moses import PunctuationNormalizer, WordTokenizer
from tests.prep.awkward import awkward_lines

LANGUAGES = ["en", "de", "fr", "fi", "ro", "zh"]  # each rule about apostrophes, quotation marks and letters


@cache
def make_tokenizers(language):
    return WordTokenizer(language), MosesTokenizer(lang=language)


@cache
def make_normalizers(language):
    return PunctuationNormalizer(language), MosesPunctNormalizer(lang=language)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=300, deadline=None)
@given(line=awkward_lines)
def test_tokens_are_those_of_sacremoses(language, line):
    cached, moses = make_tokenizers(language)
    assert cached.tokenize(line) == moses.tokenize(line, return_str=True)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=300, deadline=None)
@given(line=awkward_lines)
def test_punctuation_is_that_of_sacremoses(language, line):
    normalizer, moses = make_normalizers(language)
    assert normalizer.normalize(line) == moses.normalize(line)


@pytest.mark.parametrize(
    "line",
    [
        "No. 5 and No. five",  # a period before a number, before lowercase, and before a capital
        "at 5 p.m. he left. He left at 5 p.m.",
        ",5 is not ,5 within a line, nor 5,",
        "' '5 and 5' '5'",  # two apostrophes share a space
        "he said 'no.'",  # a space follows the last apostrophe
        "DOTMULTI",
    ],
)
def test_the_context_of_a_word_counts(line):
    cached, moses = make_tokenizers("en")
    assert cached.tokenize(line) == moses.tokenize(line, return_str=True)


def test_a_frequent_word_is_tokenized_once():
    tokenizer = WordTokenizer("de")
    for _ in range(3):
        assert tokenizer.tokenize("Ein Satz, und ein Satz, der endet.") == "Ein Satz , und ein Satz , der endet ."
    assert tokenizer.tokenize_word.cache_info().misses == 2  # "Satz," and "endet." at the end
