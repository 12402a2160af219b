"""BLEU in validation, on tokenized and detokenized text, from statistics that are summed over batches and workers."""

from collections.abc import Callable, Mapping
from typing import Any

from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from fairseq.utils import strip_pad
from sacrebleu.metrics import BLEU

from relumt.prep.tokenization import detokenize

TOKENIZERS = {"bleu": "none", "bleu_detokenized": "13a"}
"""Name in the log → sacreBLEU's tokenizer. "bleu" is on tokenized text, as in the papers."""

UNKNOWN = "UNKNOWNTOKENINREF"
"""Stands for unknown words in references, so that unknown words in translations match nothing."""

STATISTICS = {"counts": 4, "totals": 4, "lengths": 2}
"""What BLEU is computed from, and how many numbers it is: matching n-grams and all n-grams for n = 1, …, 4, and the
lengths of translations and references."""


def bleu_statistics(name: str, hypotheses: list[str], references: list[str]) -> dict[str, float]:
    """Return the statistics of a batch for the score that the log calls `name`, by their names in the log."""
    score = BLEU(tokenize=TOKENIZERS[name], force=True).corpus_score(hypotheses, [references])
    values = {"counts": score.counts, "totals": score.totals, "lengths": [score.sys_len, score.ref_len]}
    return {f"_{name}_{statistic}_{i}": value for statistic in STATISTICS for i, value in enumerate(values[statistic])}


def log_bleu(name: str, logging_outputs: list[dict[str, Any]]) -> None:
    """Log the BLEU of all batches of all workers; log nothing without validation batches."""
    sums = {
        statistic: [sum(float(log.get(f"_{name}_{statistic}_{i}", 0)) for log in logging_outputs) for i in range(size)]
        for statistic, size in STATISTICS.items()
    }
    if not any(sums["lengths"]):
        return
    # Not arrays, as in fairseq's translation task: checkpoints store the meters and are loaded with weights_only.
    for statistic, values in sums.items():
        for i, value in enumerate(values):
            metrics.log_scalar(f"_{name}_{statistic}_{i}", value)
    metrics.log_derived(name, _bleu_from_meters(name))


def _bleu_from_meters(name: str) -> Callable[[Mapping[str, Any]], float]:
    def bleu(meters: Mapping[str, Any]) -> float:
        counts, totals, lengths = (
            [meters[f"_{name}_{statistic}_{i}"].sum for i in range(size)] for statistic, size in STATISTICS.items()
        )
        score = BLEU.compute_bleu(
            correct=counts, total=totals, sys_len=int(lengths[0]), ref_len=int(lengths[1]), smooth_method="exp"
        )
        return round(score.score, 2)

    return bleu


class BleuValidation(FairseqTask):
    """A mixin for translation tasks that, with --eval-bleu, validates with "bleu" and "bleu_detokenized".

    fairseq's --eval-bleu-args and --eval-bleu-remove-bpe apply. --eval-bleu-detok and --eval-tokenized-bleu do not,
    because both scores are logged, and neither does --eval-bleu-print-samples.
    """

    def valid_step(self, sample: Mapping[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return loss, sample size and log of a batch; the log includes the statistics of both BLEU scores."""
        # Bypasses TranslationTask's method, which would translate the batch a second time for its own score.
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self.translate(sample, model)
            log |= bleu_statistics("bleu", hypotheses, references)
            detokenized = (detokenize(lines, self.cfg.target_lang) for lines in (hypotheses, references))
            log |= bleu_statistics("bleu_detokenized", *detokenized)
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
        for name in TOKENIZERS:
            log_bleu(name, logging_outputs)
