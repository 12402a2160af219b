import pickle
from functools import partial

import pytest

from relumt.prep.tokenization import lowercase, tokenize


def test_moses_tokens():
    assert tokenize(["Das ist z.B. <ein> Hut, oder?"], "de") == ["Das ist z.B. &lt; ein &gt; Hut , oder ?"]
    assert tokenize(["Mr. Jones's hat isn't here."], "en") == ["Mr. Jones &apos;s hat isn &apos;t here ."]


@pytest.mark.parametrize("rewrite", [lowercase, partial(tokenize, language="de")])
def test_a_worker_process_rewrites_lines_the_same_way(rewrite):
    lines = ["Zeile 1.", "Zeile 2."]
    assert pickle.loads(pickle.dumps(rewrite))(lines) == rewrite(lines)
