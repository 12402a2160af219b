"""Score translations with sacreBLEU: BLEU on tokens and on plain text, chrF and, for sentences, TER."""

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from relumt.corpora.tokenization import bleu_tokenizer
from relumt.runs.evaluation_record import Score, Scores
from relumt.runs.translations import Translations


def score_translations(translations: Translations, ignore_case: bool, language: str) -> Scores:
    """Score on Moses tokens (BLEU as in [RF]) and on detokenized text (comparable across papers).

    Args:
        translations: what to score.
        ignore_case: for lowercased text; the signatures then say case:lc, which TER's always does.
        language: the target language, which decides how BLEU splits detokenized text.
    """
    ter = corpus_score(TER(), translations.hypotheses, translations.references)
    return score_documents(translations, ignore_case, language) | {"ter": ter}


def score_documents(translations: Translations, ignore_case: bool, language: str) -> Scores:
    """Score as `score_translations` does, but without TER, whose search for shifts takes hours on long lines."""
    plain = (translations.hypotheses, translations.references)
    detokenized = BLEU(tokenize=bleu_tokenizer(language), lowercase=ignore_case)
    return {
        "bleu_tokenized": tokenized_bleu(translations, ignore_case),
        "bleu_detokenized": corpus_score(detokenized, *plain),
        "chrf": corpus_score(CHRF(lowercase=ignore_case), *plain),
    }


def tokenized_bleu(translations: Translations, ignore_case: bool) -> Score:
    """Score Moses tokens by BLEU."""
    # force only silences sacreBLEU's warning that the text looks tokenized, which it is meant to be
    metric = BLEU(tokenize="none", lowercase=ignore_case, force=True)
    return corpus_score(metric, translations.tokenized_hypotheses, translations.tokenized_references)


def corpus_score(metric: Metric, hypotheses: list[str], references: list[str]) -> Score:
    """Score a corpus with one reference per sentence."""
    result = metric.corpus_score(hypotheses, [references])
    return Score(result.score, str(metric.get_signature()), str(result))
