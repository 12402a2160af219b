"""Significance of differences in BLEU: sacreBLEU's paired tests, one per seed.

Seeds are not pooled: two translations of the same sentences are not twice as many sentences.
"""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from relumt.errors import UserError
from relumt.runs.record import RunRecord
from relumt.runs.translations import load_text
from relumt.tables.context import SIGNIFICANCE_TESTS
from relumt.tables.runs import Run

TOKENIZERS = ("none", "13a")
"""Those with which relumt scores; others of sacreBLEU download models."""


def p_values(systems: Sequence[Run], baselines: Sequence[Run], metric: str, test: str) -> dict[int, float]:
    """Return seed -> p-value for the seeds for which both have scored files; `test` is a key of SIGNIFICANCE_TESTS."""
    by_seed = {run.seed: run for run in baselines}
    pairs = [(system, by_seed[system.seed]) for system in systems if system.seed in by_seed]
    return {
        system.seed: p_value(system, baseline, metric, test)
        for system, baseline in pairs
        if all(metric in run.record.test_evaluation.scored_files for run in (system, baseline))
    }


def p_value(system: Run, baseline: Run, metric: str, test: str) -> float:
    """Return the p-value of the difference in BLEU; 1.0 for identical outputs (sacreBLEU's bootstrap returns 0.001)."""
    hypotheses, references = scored_lines(system, metric)
    baseline_hypotheses, baseline_references = scored_lines(baseline, metric)
    if references != baseline_references:
        raise UserError(f"{system.folder} and {baseline.folder} have other references; evaluate both again")
    if hypotheses == baseline_hypotheses:
        return 1.0
    named: list[tuple[str, Sequence[str]]] = [("baseline", baseline_hypotheses), ("system", hypotheses)]
    metrics = {"BLEU": same_bleu(system.record, metric)}
    _, results = PairedTest(named, metrics, [references], test_type=SIGNIFICANCE_TESTS[test])()
    return results["BLEU"][1].p_value  # type: ignore[union-attr,return-value]  # sacreBLEU's types allow no result


def scored_lines(run: Run, metric: str) -> tuple[list[str], list[str]]:
    """Return the hypotheses and references that a score was computed on; raise UserError if their numbers differ."""
    hypotheses, references = (run.folder / name for name in run.record.test_evaluation.scored_files[metric])
    lines = load_text(hypotheses), load_text(references)
    if len(lines[0]) != len(lines[1]):
        raise UserError(f"{hypotheses} has {len(lines[0])} lines, {references} has {len(lines[1])}; evaluate again")
    return lines


def same_bleu(record: RunRecord, metric: str) -> BLEU:
    """Return the BLEU with the signature in the record; raise UserError for a signature that is not of BLEU."""
    signature = record.test_score(metric).signature
    settings = dict(part.partition(":")[::2] for part in signature.split("|"))
    if settings.get("tok") not in TOKENIZERS or "case" not in settings:
        raise UserError(f"{record.name}: expected a signature of sacreBLEU, found '{signature}'; evaluate again")
    return BLEU(tokenize=settings["tok"], lowercase=settings["case"] == "lc", force=True)
