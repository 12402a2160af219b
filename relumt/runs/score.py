"""BLEU twice, chrF and, of sentences, TER by sacreBLEU, each with the signature that says how it was counted."""

from dataclasses import asdict, dataclass

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from relumt.runs.translations import Translations


@dataclass(frozen=True)
class Score:
    """A corpus score, sacreBLEU's signature of it, and its parts in words (precisions, brevity penalty …)."""

    score: float
    signature: str
    detail: str


Scores = dict[str, dict[str, float | str]]


def score_translations(translations: Translations, ignore_case: bool) -> Scores:
    """Score on the Moses tokens (BLEU as [RF] counts it) and on detokenised text (comparable across papers).

    ignore_case: for text that was put into lower case; the signatures then say case:lc, as TER's always does.
    """
    ter = corpus_score(TER(), translations.hypotheses, translations.references)
    return score_documents(translations, ignore_case) | {"ter": asdict(ter)}


def score_documents(translations: Translations, ignore_case: bool) -> Scores:
    """As `score_translations`, of documents a line, without TER: its search for shifts takes hours of long lines."""
    tokenised = (translations.tokenised_hypotheses, translations.tokenised_references)
    plain = (translations.hypotheses, translations.references)
    scores = {
        # force: its only effect is that sacreBLEU does not warn of text that looks tokenised, as it should here
        "bleu_tokenised": corpus_score(BLEU(tokenize="none", lowercase=ignore_case, force=True), *tokenised),
        "bleu_detokenised": corpus_score(BLEU(tokenize="13a", lowercase=ignore_case), *plain),
        "chrf": corpus_score(CHRF(lowercase=ignore_case), *plain),
    }
    return {name: asdict(score) for name, score in scores.items()}


def corpus_score(metric: Metric, hypotheses: list[str], references: list[str]) -> Score:
    """One metric over a corpus with one reference a sentence."""
    result = metric.corpus_score(hypotheses, [references])
    return Score(result.score, str(metric.get_signature()), str(result))
