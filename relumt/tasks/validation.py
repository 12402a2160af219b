"""BLEU during validation, on tokens and on detokenised text, as sums that add up over batches and workers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fairseq.logging import metrics
from sacrebleu.metrics import BLEU

TOKENIZERS = {"bleu": "none", "bleu_detokenised": "13a"}
"""Name in the log → sacreBLEU's tokeniser; "bleu" is on tokens, as the papers count it."""

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
        part: np.array([sum(float(log.get(f"_{name}_{part}_{i}", 0)) for log in logging_outputs) for i in range(size)])
        for part, size in PARTS.items()
    }
    if not added["totals"].any():
        return
    for part, value in added.items():
        metrics.log_scalar(f"_{name}_{part}", value)
    metrics.log_derived(name, _derived(name))


def _derived(name: str) -> Callable[[Mapping[str, Any]], float]:
    def bleu(meters: Mapping[str, Any]) -> float:
        counts, totals, lengths = (meters[f"_{name}_{part}"].sum for part in PARTS)
        score = BLEU.compute_bleu(
            correct=counts.tolist(), total=totals.tolist(), sys_len=int(lengths[0]), ref_len=int(lengths[1]),
            smooth_method="exp",
        )  # fmt: skip
        return round(score.score, 2)

    return bleu
