import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from relumt.errors import UserError
from relumt.runs.external_scores import require_metric_name
from relumt.runs.scores import score_translations
from relumt.runs.translations import Translations

TRANSLATIONS = Translations(
    tokenized_hypotheses=["The dog is n&apos;t here , is it ?", "A man rides a bike .", "Two Children play outside"],
    tokenized_references=["The dog is not here , is it ?", "A man is riding a bike .", "Two children play outside ."],
    hypotheses=["The dog isn't here, is it?", "A man rides a bike.", "Two Children play outside"],
    references=["The dog is not here, is it?", "A man is riding a bike.", "Two children play outside."],
)


def sacrebleu_command(tmp_path, hypotheses, references, *options):
    """Score and signature as sacreBLEU's own command prints them."""
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n")
    (tmp_path / "ref").write_text("\n".join(references) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), "-w", "6"]
    result = json.loads(subprocess.run([*command, *options], capture_output=True, check=True, text=True).stdout)
    return result["score"], result["signature"]


@pytest.mark.parametrize("ignore_case", [False, True])
def test_scores_and_signatures_are_those_of_the_command(tmp_path, ignore_case):
    scores = score_translations(TRANSLATIONS, ignore_case, "en")
    tokenized = (TRANSLATIONS.tokenized_hypotheses, TRANSLATIONS.tokenized_references)
    plain = (TRANSLATIONS.hypotheses, TRANSLATIONS.references)
    bleu_case = ["-lc"] if ignore_case else []
    chrf_case = ["--chrf-lowercase"] if ignore_case else []
    for name, texts, options in (
        ("bleu_tokenized", tokenized, ["-m", "bleu", "--tokenize", "none", *bleu_case]),
        ("bleu_detokenized", plain, ["-m", "bleu", *bleu_case]),
        ("chrf", plain, ["-m", "chrf", *chrf_case]),
        ("ter", plain, ["-m", "ter"]),
    ):
        score, signature = sacrebleu_command(tmp_path, *texts, *options)
        assert scores[name].score == pytest.approx(score, abs=1e-6)
        assert scores[name].signature == signature


def test_case_counts_unless_it_is_ignored():
    mixed, ignored = (score_translations(TRANSLATIONS, case, "en") for case in (False, True))
    assert ignored["bleu_detokenized"].score > mixed["bleu_detokenized"].score
    assert ("case:mixed" in mixed["chrf"].signature, "case:lc" in ignored["chrf"].signature) == (True, True)


@pytest.mark.parametrize(("language", "tokenizer"), [("zh-CN", "zh"), ("ja", "char"), ("ko_KR", "char"), ("de", "13a")])
def test_plain_text_is_split_as_its_language_needs(language, tokenizer):
    lines = ["他在公园里骑自行车。"], ["他在公园里骑着自行车。"]
    bleu = score_translations(Translations(*lines, *lines), False, language)["bleu_detokenized"]
    assert f"|tok:{tokenizer}|" in bleu.signature
    assert (bleu.score > 40) == (tokenizer != "13a")


@pytest.mark.parametrize("name", ["BLEU", "bleu", "chrF", "TER"])
def test_an_external_metric_has_no_name_of_sacrebleu(name):
    with pytest.raises(UserError, match="is the name of a score of sacreBLEU"):
        require_metric_name(name, SimpleNamespace(scores={}))
