"""The table of `relumt quantize`: BLEU of a run's model and of its quantized versions on one subset."""

import shlex
from pathlib import Path

from relumt.errors import UserError
from relumt.runs.comparability import require_equal
from relumt.runs.quantized_record import (
    FLOAT,
    QUANTIZED_FOLDER,
    QuantizedModel,
    TimedEvaluation,
    find_quantized_records,
)
from relumt.runs.scored_files import load_scored_lines
from relumt.tables.context import P_VALUE_NOTES
from relumt.tables.rendering import RenderedTable
from relumt.tables.significance import paired_p_value, same_bleu

METRIC = "bleu_tokenized"
TEST = "randomization"
"""Significance test; two-sided, because quantization may change a score either way."""

HEADER = (
    "numbers",
    "BLEU, tokenized",
    "difference",
    "p",
    "changed translations",
    "CPU time, s",
    "accumulator of distances, bits",
    "of products, bits",
)


def compare_models(run: Path, subset: str) -> RenderedTable:
    """Compare all quantized models of a run that translated a subset with the float model.

    Models that were quantized from another checkpoint than the float model's are left out, with a note.

    Raises:
        UserError: the float model did not translate the subset, or from other data.
    """
    records = find_quantized_records(run)
    scored = {name: record.evaluations[subset] for name, record in records.items() if subset in record.evaluations}
    if FLOAT not in scored:
        raise UserError(f"{run / QUANTIZED_FOLDER}: the float model has not translated {subset}; run relumt quantize")
    baseline = scored[FLOAT]
    outdated = {
        name: model
        for name, timed in scored.items()
        if (model := records[name].model) and is_outdated(model, timed, baseline)
    }
    shown = {name: timed for name, timed in scored.items() if name not in outdated}
    rows = []
    for name, timed in shown.items():
        model = records[name].model
        compared = ["", "", ""] if model is None else compare(run, name, timed, baseline)
        widths = model.accumulator_bits if model else {}
        bleu = f"{timed.evaluation.scores[METRIC].score:.2f}"
        rows.append(
            [
                describe(model),
                bleu,
                *compared,
                f"{timed.cpu_seconds:.0f}",
                widths.get("distances", ""),
                widths.get("products", ""),
            ]
        )
    left_out = [outdated_note(run, subset, model) for model in outdated.values()]
    calibrated_on = {model.calibration_subset for name in shown if (model := records[name].model)}
    return RenderedTable(
        f"{run}: {subset}", HEADER, rows, [*left_out, *notes(baseline, list(shown.values()), sorted(calibrated_on))]
    )


def is_outdated(model: QuantizedModel, timed: TimedEvaluation, baseline: TimedEvaluation) -> bool:
    """Return whether a translation is not by the model quantized from the checkpoint of the float model."""
    translated, float_translated = (one.evaluation.setup.checkpoint_sha256 for one in (timed, baseline))
    return (model.original_sha256, model.checkpoint_sha256) != (float_translated, translated)


def outdated_note(run: Path, subset: str, model: QuantizedModel) -> str:
    """Return why a model is left out, and the command that translates with it again."""
    part = ["--attention-only"] if model.part == "attention" else []
    command = ["relumt", "quantize", str(run), "--bits", str(model.bits), *part, "--subset", subset]
    return f"left out: {describe(model)}, of another checkpoint; repeat it with {shlex.join(command)}"


def describe(model: QuantizedModel | None) -> str:
    """Return what the first column calls a model."""
    if model is None:
        return "float32"
    return f"{model.bits} bits" + (", attention only" if model.part == "attention" else "")


def compare(run: Path, name: str, timed: TimedEvaluation, baseline: TimedEvaluation) -> list[str]:
    """Return the difference in BLEU to the float model, its p-value, and how many translations differ."""
    evaluations = {
        str(run / QUANTIZED_FOLDER / FLOAT): baseline.evaluation,
        str(run / QUANTIZED_FOLDER / name): timed.evaluation,
    }
    require_equal(evaluations, "their data", lambda evaluation: evaluation.setup.data)
    require_equal(evaluations, "their flags of translation", lambda evaluation: evaluation.setup.flags)
    hypotheses, references = load_scored_lines(run / QUANTIZED_FOLDER / name, timed.evaluation, METRIC)
    float_hypotheses, _ = load_scored_lines(run / QUANTIZED_FOLDER / FLOAT, baseline.evaluation, METRIC)
    changed = sum(map(str.__ne__, hypotheses, float_hypotheses))
    score, float_score = (evaluation.scores[METRIC] for evaluation in (timed.evaluation, baseline.evaluation))
    p = paired_p_value(hypotheses, float_hypotheses, references, same_bleu(run / QUANTIZED_FOLDER / name, score), TEST)
    difference = f"{score.score - float_score.score:+.2f}"
    return [difference, "-" if p is None else f"{p:.4f}", f"{changed} of {len(hypotheses)}"]


def notes(baseline: TimedEvaluation, scored: list[TimedEvaluation], calibrated_on: list[str]) -> list[str]:
    """Return what the reader has to know about the rows.

    Args:
        baseline: the evaluation of the float model.
        scored: the evaluations of all rows.
        calibrated_on: subsets with which scales were calibrated.
    """
    revisions = dict.fromkeys(timed.evaluation.setup.environment.relumt for timed in scored)
    return [
        f"BLEU: `{baseline.evaluation.scores[METRIC].signature}`",
        P_VALUE_NOTES[TEST],
        f"translated with {', '.join(revisions)}",
        *([f"scales calibrated on {', '.join(calibrated_on)}"] if calibrated_on else []),
        "in float: embeddings, residual sums, LayerNorm, activations, softmax of the output, and rescaling",
        "CPU time: of loading the model and translating",
    ]
