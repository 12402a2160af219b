import json
import subprocess
import sys

import pytest

from relumt.corpora.tokenization import detokenize, tokenize
from relumt.runs.scores import score_translations
from relumt.runs.translations import Translations

TRANSLATIONS = Translations(
    tokenized_hypotheses=["The dog is n&apos;t here , is it ?", "A man rides a bike .", "Two Children play outside"],
    tokenized_references=["The dog is not here , is it ?", "A man is riding a bike .", "Two children play outside ."],
    hypotheses=["The dog isn't here, is it?", "A man rides a bike.", "Two Children play outside"],
    references=["The dog is not here, is it?", "A man is riding a bike.", "Two children play outside."],
)


def sacrebleu_command(tmp_path, hypotheses, references, *options):
    """Scores and signatures as sacreBLEU's own command prints them."""
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n")
    (tmp_path / "ref").write_text("\n".join(references) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), "-w", "6"]
    results = json.loads(subprocess.run([*command, *options], capture_output=True, check=True, text=True).stdout)
    return [(result["score"], result["signature"]) for result in (results if isinstance(results, list) else [results])]


@pytest.mark.parametrize("ignore_case", [False, True])
def test_scores_and_signatures_are_those_of_the_command(tmp_path, ignore_case):
    scores = score_translations(TRANSLATIONS, ignore_case, "en")
    tokenized = (TRANSLATIONS.tokenized_hypotheses, TRANSLATIONS.tokenized_references)
    plain = (TRANSLATIONS.hypotheses, TRANSLATIONS.references)
    case = ["-lc", "--chrf-lowercase"] if ignore_case else []
    expected = sacrebleu_command(tmp_path, *tokenized, "-m", "bleu", "--tokenize", "none", *case)
    expected += sacrebleu_command(tmp_path, *plain, "-m", "bleu", "chrf", "ter", *case)
    for found, (score, signature) in zip(scores.values(), expected, strict=True):
        assert found.score == pytest.approx(score, abs=1e-6) and found.signature == signature


def test_a_translation_that_is_the_reference_scores_100():
    """sacreBLEU's 13a rewrites entities and <skipped> in raw references; detokenization keeps them whole."""
    raw = [
        "He said &quot;yes&quot; &amp; left <skipped> early.",
        "Yesterday’s news isn’t &lt;b&gt;bold&lt;/b&gt; news.",
    ]
    tokens = tokenize(raw, "en")
    scores = score_translations(Translations(tokens, tokens, detokenize(tokens, "en"), raw), False, "en")
    assert [scores[name].score for name in ("bleu_tokenized", "bleu_detokenized", "chrf")] == pytest.approx([100] * 3)


@pytest.mark.parametrize(("language", "tokenizer"), [("zh-CN", "zh"), ("ja", "char"), ("ko_KR", "char"), ("de", "13a")])
def test_plain_text_is_split_as_its_language_needs(language, tokenizer):
    lines = ["他在公园里骑自行车。"], ["他在公园里骑着自行车。"]
    bleu = score_translations(Translations(*lines, *lines), False, language)["bleu_detokenized"]
    assert f"|tok:{tokenizer}|" in bleu.signature
    assert (bleu.score > 40) == (tokenizer != "13a")
