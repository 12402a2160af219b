"""Whether two systems differ on a test set: sacreBLEU's paired tests, seed by seed.

Every seed that both have is a test of its own. Seeds are not pooled: the same sentences translated twice are not
twice as many sentences.
"""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from relumt.runs.record import RunRecord
from relumt.tables.runs import Run
from relumt.text_files import read_clean_lines


def p_values(systems: Sequence[Run], baselines: Sequence[Run], score: str, test: str) -> dict[int, float]:
    """By seed, in their order, the p-value of each that both have.

    score: "bleu_tokenized" or "bleu_detokenized"; test: "bs" or "ar". A run that was evaluated before its references
    were kept has none.
    """
    by_seed = {run.seed: run for run in baselines}
    pairs = [(run, by_seed[run.seed]) for run in systems if run.seed in by_seed]
    kept = [pair for pair in pairs if all(score in run.record.test_evaluation.scored_files for run in pair)]
    return {system.seed: p_value(system, baseline, score, test) for system, baseline in kept}


def p_value(system: Run, baseline: Run, score: str, test: str) -> float:
    """Of the difference of two runs' BLEU; 1 for equal translations, of which sacreBLEU's bootstrap says 0.001."""
    hypotheses, references = lines_of(system, score)
    of_baseline, _ = lines_of(baseline, score)
    if hypotheses == of_baseline:
        return 1.0
    systems = [("baseline", of_baseline), ("system", hypotheses)]
    metrics = {"BLEU": metric_of(system.record, score)}
    _, results = PairedTest(systems, metrics, [references], test_type=test)()
    return float(results["BLEU"][1].p_value)


def lines_of(run: Run, score: str) -> tuple[list[str], list[str]]:
    """What was scored and against what."""
    hypotheses, references = (
        list(read_clean_lines(run.folder / name)) for name in run.record.test_evaluation.scored_files[score]
    )
    return hypotheses, references


def metric_of(record: RunRecord, score: str) -> BLEU:
    """The BLEU whose signature the record has."""
    of = dict(part.split(":") for part in record.test_score(score).signature.split("|"))
    return BLEU(tokenize=of["tok"], lowercase=of["case"] == "lc", force=True)
