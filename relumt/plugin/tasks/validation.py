"""BLEU in validation, on tokenized and detokenized text, from statistics that are summed over batches and workers."""

import logging
from collections.abc import Mapping
from typing import Any

from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from fairseq.utils import strip_pad
from sacrebleu.metrics import BLEU

from relumt.corpora.tokenization import bleu_tokenizer, detokenize

UNKNOWN = "UNKNOWNTOKENINREF"
"""Stands for unknown words in references, so that unknown words in translations match nothing."""

logger = logging.getLogger(__name__)

NUM_STATISTICS = 10
"""BLEU is computed from the matching n-grams and all n-grams for n = 1, …, 4, and the lengths of both sides."""


def bleu_statistics(name: str, tokenizer: str, hypotheses: list[str], references: list[str]) -> dict[str, float]:
    """Return the statistics of a batch for the score that the log calls `name`, by their names in the log."""
    score = BLEU(tokenize=tokenizer, force=True).corpus_score(hypotheses, [references])
    statistics = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return {f"_{name}_{i}": value for i, value in enumerate(statistics)}


def log_bleu(name: str, logging_outputs: list[dict[str, Any]]) -> None:
    """Log the BLEU of all batches of all workers; log nothing without validation batches."""
    keys = [f"_{name}_{i}" for i in range(NUM_STATISTICS)]
    sums = {key: sum(float(log.get(key, 0)) for log in logging_outputs) for key in keys}
    if not any(sums.values()):
        return
    # Not arrays, as in fairseq's translation task: checkpoints store the meters and are loaded with weights_only.
    for key, value in sums.items():
        metrics.log_scalar(key, value)

    def bleu(meters: Mapping[str, Any]) -> float:
        *counts, sys_len, ref_len = (int(meters[key].sum) for key in keys)
        return round(BLEU.compute_bleu(counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp").score, 2)

    metrics.log_derived(name, bleu)


class BleuValidation(FairseqTask):
    """A mixin for translation tasks that, with --eval-bleu, validates with "bleu" and "bleu_detokenized".

    fairseq's --eval-bleu-args, --eval-bleu-remove-bpe and --eval-bleu-print-samples apply. --eval-bleu-detok and
    --eval-tokenized-bleu do not, because both scores are logged.
    """

    def valid_step(self, sample: Mapping[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return loss, sample size and log of a batch; the log includes the statistics of both BLEU scores."""
        # Bypasses TranslationTask's method, which would translate the batch a second time for its own score.
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self.translate(sample, model)
            if self.cfg.eval_bleu_print_samples:
                logger.info("example hypothesis: %s", hypotheses[0])
                logger.info("example reference: %s", references[0])
            language = self.cfg.target_lang
            log |= bleu_statistics("bleu", "none", hypotheses, references)
            detokenized = (detokenize(lines, language) for lines in (hypotheses, references))
            log |= bleu_statistics("bleu_detokenized", bleu_tokenizer(language), *detokenized)
        return loss, sample_size, log

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """Return the translations and the references of a batch, with subwords joined."""
        generated = self.inference_step(self.sequence_generator, [model], sample)
        bpe, dictionary = self.cfg.eval_bleu_remove_bpe, self.tgt_dict
        hypotheses = [dictionary.string(best["tokens"].int().cpu(), bpe) for best, *_ in generated]
        references = [
            dictionary.string(strip_pad(target, dictionary.pad()).int().cpu(), bpe, unk_string=UNKNOWN)
            for target in sample["target"]
        ]
        return hypotheses, references

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Log fairseq's metrics and both BLEU scores."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        for name in ("bleu", "bleu_detokenized"):  # the first on tokenized text, as in the papers
            log_bleu(name, logging_outputs)
