"""Tokens and punctuation are those of sacremoses, for every code of a language."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from relumt.corpora.tokenization import (
    WordTokenizer,
    bleu_tokenizer,
    detokenize,
    normalize_punctuation,
    primary_language,
    punctuation_normalizer,
    tokenize,
)
from tests.corpora.cases import awkward_lines

LANGUAGES = ["en", "de", "fr", "fi", "ro", "zh"]  # each rule about apostrophes, quotation marks and letters


@cache
def make_tools(language):
    moses = MosesTokenizer(lang=language), MosesPunctNormalizer(lang=language)
    return WordTokenizer(language), punctuation_normalizer(language), *moses


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=60, deadline=None)
@example(line="No. 5 and No. five")  # a period before a number, before lowercase, and before a capital
@example(line="at 5 p.m. he left. He left at 5 p.m.")
@example(line=",5 is not ,5 within a line, nor 5,")
@example(line="' '5 and 5' '5'")  # two apostrophes share a space
@example(line="he said 'no.'")  # a space follows the last apostrophe
@example(line="DOTMULTI")
@given(line=awkward_lines)
def test_tokens_and_punctuation_are_those_of_sacremoses(language, line):
    cached, normalize, moses, normalizer = make_tools(language)
    assert cached.tokenize(line) == moses.tokenize(line, return_str=True)
    assert normalize(line) == normalizer.normalize(line)


def test_moses_tokens():
    assert tokenize(["Das ist z.B. <ein> Hut, oder?"], "de") == ["Das ist z.B. &lt; ein &gt; Hut , oder ?"]
    assert tokenize(["Mr. Jones's hat isn't here."], "en") == ["Mr. Jones &apos;s hat isn &apos;t here ."]


def test_a_region_keeps_the_rules_of_the_language():
    assert tokenize(["It isn't here."], "en-US") == ["It isn &apos;t here ."]
    assert tokenize(["日本"], "zh_CN") == ["日 本"]
    assert detokenize(["l&apos; eau est"], "fr-CA") == ["l'eau est"]
    assert normalize_punctuation(['"Ja", sagt er.'], "DE-at") == ['"Ja", sagt er.']  # not '"Ja,"' as in English


@pytest.mark.parametrize(
    ("codes", "language"),
    [
        ("de deu ger deu_Latn de-DE DE-at", "de"),
        ("zh zho chi cmn zho_Hans zh_CN zh-Hant-TW", "zh"),
        ("ja jpn jpn_Jpan", "ja"),
        ("pt por pt_br pt-BR", "pt"),
        ("yue yue_Hant", "yue"),
        ("lv lav lvs_Latn", "lv"),
        ("part-1-of-10-languages", "part"),
    ],
)
def test_codes_of_one_language_have_the_same_rules(codes, language):
    assert {primary_language(code) for code in codes.split()} == {language}
    assert {bleu_tokenizer(code) for code in codes.split()} == {bleu_tokenizer(language)}
