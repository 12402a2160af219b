"""Tables of all runs that are scored or diverged: one per dataset, with one row per model."""

from collections.abc import Sequence
from pathlib import Path

from relumt.errors import UserError
from relumt.papers.comparability import DATA, EVALUATION, INITIALIZATION, METRIC_TITLES, require_equal, signatures
from relumt.papers.experiments import Experiment
from relumt.papers.measures import PARAMETERS, TOKENS_PER_SECOND, Measure, external_scores, score
from relumt.papers.notes import (
    SPREAD_NOTE,
    accepted_changes_note,
    added_flags_notes,
    decoding_notes,
    describe_revisions,
    difference_notes,
    diverged_note,
    initialization_notes,
    models_by,
    signature_of,
)
from relumt.papers.rendering import RenderedTable
from relumt.papers.runs import MODEL_FLAGS, Run, find_runs, records_by_folder
from relumt.runs.flags import format_flag
from relumt.runs.record import RUN_RECORD

SCORES = [score(metric) for metric in METRIC_TITLES]


def overview_tables(runs: Path, dataset: str | None) -> list[RenderedTable]:
    """Return a table for each dataset, or only for the named one, and one for the subsets of its test set, if any.

    Raises:
        UserError: no run is scored or diverged, or two runs of one dataset cannot be compared.
    """
    models: dict[str, set[str]] = {}
    for path in runs.glob(f"*/*/*/{RUN_RECORD}"):
        name, model = path.parts[-4:-2]
        if not dataset or name == dataset:
            models.setdefault(name, set()).add(model)
    tables = []
    for name in sorted(models):
        by_model = [find_runs(Experiment(name, model), runs) for model in sorted(models[name])]
        if found := [group for group in by_model if group]:
            tables += dataset_tables(name, found)
    if not tables:
        raise UserError(f"{runs / (dataset or '')}: no scored run; run relumt run first, or give another --runs")
    return tables


def dataset_tables(dataset: str, by_model: Sequence[Sequence[Run]]) -> list[RenderedTable]:
    """Return the table of one dataset's runs, and a second one if subsets of its test set are scored.

    Raises:
        UserError: two of the runs cannot be compared; the message says which and why.
    """
    runs = [run for group in by_model for run in group]
    measures = [*SCORES, *external_scores(runs)]
    metrics = [measure.metric for measure in measures]
    subsets = {
        "the subsets of the test set": lambda run: sorted(run.test_evaluation.subsets) if run.is_scored else None
    }
    require_equal(records_by_folder(runs), {**signatures(metrics), **DATA, **EVALUATION, **subsets, **INITIALIZATION})
    shown = [PARAMETERS, *measures, TOKENS_PER_SECOND]
    rows = []
    for group in by_model:
        marker = "*" if accepted_changes_note(group) else ""
        seeds = ", ".join(str(run.seed) for run in group)
        cells = [measure.format_mean(group) for measure in shown]
        rows.append([group[0].record.model + marker, seeds, *cells])
    header = ["model", "seeds", *(measure.label for measure in shown)]
    notes = [
        *(f"{title}: {signature}" for title, signature in signature_of(runs, metrics).items()),
        *decoding_notes(runs),
        *_device_notes(runs),
        describe_revisions(runs),
        *added_flags_notes(runs),
        *_differing_flags_notes(runs),
        *difference_notes(runs),
        *initialization_notes(runs),
        *([SPREAD_NOTE] if len(runs) > len(by_model) else []),
        *diverged_note(runs),
        *(f"*: {note}" for note in accepted_changes_note(runs)),
    ]
    return [RenderedTable(dataset, header, rows, notes), *_subset_tables(dataset, by_model)]


def _subset_tables(dataset: str, by_model: Sequence[Sequence[Run]]) -> list[RenderedTable]:
    """Return a table of the scores on the subsets of the test set, if there are any."""
    scored = [run.record.test_evaluation for group in by_model for run in group if run.record.is_scored]
    sentences = {name: subset.sentences for evaluation in scored for name, subset in evaluation.subsets.items()}

    def scores(name: str) -> list[Measure]:
        def score_of(metric: str) -> Measure:
            return Measure(metric, lambda run: run.record.test_evaluation.subsets[name].scores[metric].score)

        return [score_of(metric) for metric in METRIC_TITLES]

    rows = [
        [name, group[0].record.model, f"{count:,}", *(measure.format_mean(group) for measure in scores(name))]
        for name, count in sentences.items()
        for group in by_model
    ]
    header = ("subset", "model", "sentences", *METRIC_TITLES.values())
    return [RenderedTable(f"{dataset}, subsets of the test set", header, rows)] if rows else []


def _differing_flags_notes(runs: Sequence[Run]) -> list[str]:
    """Return the note on flags of training that differ between models beyond those of configs/models.toml.

    The tables of papers refuse such runs.
    """
    names = dict.fromkeys(name for run in runs for name in run.record.provenance.flags)
    by_flag = [
        models_by(runs, lambda run, name=name: format_flag(run.record.provenance.flags, name))  # type: ignore[misc]
        for name in names
        if not MODEL_FLAGS.fullmatch(name)
    ]
    differing = [
        ", ".join(f"{flag} ({models})" for flag, models in found.items()) for found in by_flag if len(found) > 1
    ]
    return [f"the models differ in flags of training: {'; '.join(differing)}"] if differing else []


def _device_notes(runs: Sequence[Run]) -> list[str]:
    """Return what the runs were trained on, and which models on what if there are several devices or precisions."""
    models = models_by(runs, lambda run: str(run.record.provenance.environment.device))
    what = "tokens/s: target tokens per second in training"
    if len(models) == 1:
        return [f"{what}, on {next(iter(models))}"]
    return [
        f"{what}, on {'; '.join(f'{device}: {found}' for device, found in sorted(models.items()))}",
        "speeds were measured on different devices or in different precisions and cannot be compared",
    ]
