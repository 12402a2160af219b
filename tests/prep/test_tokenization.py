import pickle
from functools import partial

import pytest

from relumt.prep.tokenization import detokenize, lowercase, normalize_punctuation, tokenize


def test_moses_tokens():
    assert tokenize(["Das ist z.B. <ein> Hut, oder?"], "de") == ["Das ist z.B. &lt; ein &gt; Hut , oder ?"]
    assert tokenize(["Mr. Jones's hat isn't here."], "en") == ["Mr. Jones &apos;s hat isn &apos;t here ."]


def test_a_region_keeps_the_rules_of_the_language():
    assert tokenize(["It isn't here."], "en-US") == ["It isn &apos;t here ."]
    assert tokenize(["日本"], "zh_CN") == ["日 本"]
    assert detokenize(["l&apos; eau est"], "fr-CA") == ["l'eau est"]
    assert normalize_punctuation(['"Ja", sagt er.'], "DE-at") == ['"Ja", sagt er.']  # not '"Ja,"' as in English


@pytest.mark.parametrize("rewrite", [lowercase, partial(tokenize, language="de")])
def test_a_worker_process_rewrites_lines_the_same_way(rewrite):
    lines = ["Zeile 1.", "Zeile 2."]
    assert pickle.loads(pickle.dumps(rewrite))(lines) == rewrite(lines)
