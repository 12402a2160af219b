import pickle
from functools import partial

import pytest

from relumt.prep.tokenization import (
    bleu_tokenizer,
    detokenize,
    lowercase,
    normalize_punctuation,
    primary_language,
    tokenize,
)


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
        ("ko kor kor_Hang", "ko"),
        ("pt por pt_br pt-BR", "pt"),
        ("yue yue_Hant", "yue"),
        ("zh-yue zh_yue", "zh"),
        ("lv lav lvs_Latn", "lv"),
        ("or ori ory_Orya", "or"),
        ("src", "src"),
        ("x", "x"),
        ("part-1-of-10-languages", "part"),
    ],
)
def test_codes_of_one_language_have_the_same_rules(codes, language):
    assert {primary_language(code) for code in codes.split()} == {language}
    assert {bleu_tokenizer(code) for code in codes.split()} == {bleu_tokenizer(language)}


@pytest.mark.parametrize("rewrite", [lowercase, partial(tokenize, language="de")])
def test_a_worker_process_rewrites_lines_the_same_way(rewrite):
    lines = ["Zeile 1.", "Zeile 2."]
    assert pickle.loads(pickle.dumps(rewrite))(lines) == rewrite(lines)
