"""BLEU during validation, on tokens and on detokenised text, as sums that add up over batches and workers."""

from collections.abc import Callable, Mapping
from typing import Any

from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from fairseq.utils import strip_pad
from sacrebleu.metrics import BLEU

from relumt.prep.tokenization import detokenize

TOKENIZERS = {"bleu": "none", "bleu_detokenised": "13a"}
"""Name in the log → sacreBLEU's tokeniser; "bleu" is on tokens, as the papers count it."""

UNKNOWN = "UNKNOWNTOKENINREF"
"""In references, so that an unknown word in a translation matches nothing."""


PARTS = {"counts": 4, "totals": 4, "lengths": 2}
"""What BLEU is made of, and how many numbers: by order of n-gram, and of the translations and the references."""


def sums(name: str, hypotheses: list[str], references: list[str]) -> dict[str, float]:
    """What a batch adds to the BLEU that the log calls `name`: matches and n-grams by order, and both lengths."""
    score = BLEU(tokenize=TOKENIZERS[name], force=True).corpus_score(hypotheses, [references])
    values = {"counts": score.counts, "totals": score.totals, "lengths": [score.sys_len, score.ref_len]}
    return {f"_{name}_{part}_{i}": value for part in PARTS for i, value in enumerate(values[part])}


def log_bleu(name: str, logging_outputs: list[dict[str, Any]]) -> None:
    """Log the BLEU of what the batches of all workers have added; nothing where there was no validation."""
    added = {
        part: [sum(float(log.get(f"_{name}_{part}_{i}", 0)) for log in logging_outputs) for i in range(size)]
        for part, size in PARTS.items()
    }
    if not any(added["lengths"]):
        return
    # Numbers, not arrays as in fairseq's own task: a checkpoint keeps the meters, and is read with weights_only.
    for part, values in added.items():
        for i, value in enumerate(values):
            metrics.log_scalar(f"_{name}_{part}_{i}", value)
    metrics.log_derived(name, _derived(name))


def _derived(name: str) -> Callable[[Mapping[str, Any]], float]:
    def bleu(meters: Mapping[str, Any]) -> float:
        counts, totals, lengths = (
            [meters[f"_{name}_{part}_{i}"].sum for i in range(size)] for part, size in PARTS.items()
        )
        score = BLEU.compute_bleu(
            correct=counts, total=totals, sys_len=int(lengths[0]), ref_len=int(lengths[1]), smooth_method="exp"
        )
        return round(score.score, 2)

    return bleu


class BleuValidation:
    """Part of a translation task that, with --eval-bleu, validates by "bleu" (on tokens) and "bleu_detokenised".

    fairseq's --eval-bleu-args and --eval-bleu-remove-bpe count; --eval-bleu-detok and --eval-tokenized-bleu do not,
    since both are given, nor does --eval-bleu-print-samples.
    """

    def valid_step(self, sample: Mapping[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """fairseq's, and what the batch adds to the two scores."""
        # Past TranslationTask's, which would translate the batch once more, for a score of its own.
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self.translate(sample, model)
            log |= sums("bleu", hypotheses, references)
            plain = (detokenize(lines, self.cfg.target_lang) for lines in (hypotheses, references))
            log |= sums("bleu_detokenised", *plain)
        return loss, sample_size, log

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """The batch's translations and references, without subwords."""
        generated = self.inference_step(self.sequence_generator, [model], sample)
        bpe, dictionary = self.cfg.eval_bleu_remove_bpe, self.tgt_dict
        hypotheses = [dictionary.string(best["tokens"].int().cpu(), bpe) for best, *_ in generated]
        references = [
            dictionary.string(strip_pad(target, dictionary.pad()).int().cpu(), bpe, unk_string=UNKNOWN)
            for target in sample["target"]
        ]
        return hypotheses, references

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """fairseq's, and the two scores."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        for name in TOKENIZERS:
            log_bleu(name, logging_outputs)
