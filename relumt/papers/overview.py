"""Tables of all runs that are scored or diverged: one per dataset, with one row per model."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from relumt.errors import UserError
from relumt.papers.comparability import (
    DATA,
    INITIALIZATION,
    METRIC_TITLES,
    Aspects,
    describe_decoding_choices,
    describe_revisions,
    require_all_equal,
    require_equal_evaluations,
    require_equal_signatures,
    require_equal_training,
    require_run_folder,
)
from relumt.papers.context import difference_notes
from relumt.papers.measures import DIVERGED, DIVERGED_NOTE, ENVIRONMENTS_NOTE, SPREAD_NOTE
from relumt.papers.rendering import RenderedTable, format_average
from relumt.papers.runs import MODEL_FLAGS, has_diverged
from relumt.runs.flags import format_flag, join_flag_values, parse_flags
from relumt.runs.record import RUN_RECORD, RunRecord, load_record


def table_head(external: Sequence[str]) -> list[str]:
    """Return the titles of the columns; `external` are the metrics of other programs."""
    return ["model", "seeds", "parameters", *METRIC_TITLES.values(), *external, "tokens/s"]


def overview_tables(runs: Path, dataset: str | None) -> list[RenderedTable]:
    """Return a table for each dataset, or only for the named one.

    Raises:
        UserError: no run is scored or diverged, or two runs of one dataset cannot be compared.
    """
    if dataset and (set(dataset) & set("/*?[") or dataset == ".."):
        raise UserError(f"--dataset {dataset}: not the name of a folder in {runs}")
    records = ended_runs(runs, dataset or "*")
    if not records:
        deeper = sorted({str(path.parents[3]) for path in runs.glob(f"*/*/*/*/{RUN_RECORD}")})
        hint = f"give --runs {deeper[0]}, or another folder there" if deeper else "run scripts/run.sh first"
        raise UserError(f"{runs / (dataset or '')}: no scored run; {hint}")
    datasets = sorted({record.dataset for record in records})
    return [
        table for name in datasets for table in dataset_tables(name, [run for run in records if run.dataset == name])
    ]


def ended_runs(runs: Path, dataset: str) -> list[RunRecord]:
    """Return the records in RUNS/DATASET/MODEL/SEED/ that have scores of the test set or diverged, sorted."""
    ended = []
    for path in runs.glob(f"{dataset}/*/*/{RUN_RECORD}"):
        record = load_record(path.parent)
        if record.is_scored or record.divergence:
            require_run_folder(path.parent, record)
            ended.append(record)
    return sorted(ended, key=lambda record: (record.model, record.seed))


def dataset_tables(dataset: str, records: list[RunRecord]) -> list[RenderedTable]:
    """Return the table of one dataset's runs, and a second one if subsets of its test set are scored.

    Raises:
        UserError: two of the runs cannot be compared; the message says which and why.
    """
    by_name = {record.name: record for record in records}
    external = sorted({metric for record in records for metric in record.external_scores})
    for metric in (*METRIC_TITLES, *external):
        require_equal_signatures(by_name, metric)
    require_all_equal(by_name, DATA)
    scored = {name: record for name, record in by_name.items() if record.is_scored}
    require_equal_evaluations(scored)
    subsets: Aspects = {"the subsets of the test set": lambda record: sorted(record.test_evaluation.subsets)}
    require_all_equal(scored, subsets)
    require_all_equal(by_name, INITIALIZATION)
    rows = [_model_row(group, external) for group in _group_by_model(records)]
    table = RenderedTable(dataset, table_head(external), rows, _notes(records, external))
    return [table, *_subset_tables(dataset, records)]


def _model_row(records: list[RunRecord], external: Sequence[str]) -> list[str]:
    """Return one model's row over its seeds, with dashes if one diverged.

    Raises:
        UserError: they were trained with different settings.
    """
    require_equal_training({record.name: record for record in records})
    marker = "*" if any(record.accepted_changes for record in records) else ""
    summaries = [record.training for record in records if record.training]
    parameters = f"{summaries[0].parameters:,}" if summaries else ""
    seeds = ", ".join(str(record.seed) for record in records)
    head = [records[0].model + marker, seeds, parameters]
    if any(map(has_diverged, records)):
        return head + [DIVERGED] * (len(table_head(external)) - len(head))
    scores = [
        format_average([record.test_score(metric).score for record in records], ".2f") for metric in METRIC_TITLES
    ]
    scores += [_external_average(records, metric) for metric in external]
    speed = format_average([summary.tokens_per_second for summary in summaries], ",.0f")
    return [*head, *scores, speed]


def _external_average(records: list[RunRecord], metric: str) -> str:
    """Return the mean over seeds of the scores by another program, "" if a seed has none."""
    found = [record.external_scores[metric].score for record in records if metric in record.external_scores]
    return format_average(found, ".4f") if len(found) == len(records) else ""


def _subset_tables(dataset: str, records: list[RunRecord]) -> list[RenderedTable]:
    """Return a table of the scores on the subsets of the test set, if there are any."""
    scored = [record.test_evaluation for record in records if record.is_scored]
    sentences = {name: subset.sentences for evaluation in scored for name, subset in evaluation.subsets.items()}
    rows = [
        [name, group[0].model, f"{count:,}", *_subset_scores(name, group)]
        for name, count in sentences.items()
        for group in _group_by_model(records)
    ]
    head = ("subset", "model", "sentences", *METRIC_TITLES.values())
    return [RenderedTable(f"{dataset}, subsets of the test set", head, rows)] if rows else []


def _subset_scores(name: str, records: list[RunRecord]) -> list[str]:
    """Return one model's mean scores on a subset of the test set, dashes if a seed diverged."""
    if any(map(has_diverged, records)):
        return [DIVERGED] * len(METRIC_TITLES)
    subsets = [record.test_evaluation.subsets[name] for record in records]
    return [format_average([subset.scores[metric].score for subset in subsets], ".2f") for metric in METRIC_TITLES]


def _notes(records: list[RunRecord], external: Sequence[str]) -> list[str]:
    """Return the lines below a table: signatures, devices, and what ± and * mean if they occur."""
    titles = METRIC_TITLES | dict(zip(external, external, strict=True))
    lines = [
        f"{title}: `{scored[0].signature(metric)}`"
        for metric, title in titles.items()
        if (scored := [record for record in records if record.has_metric(metric)])
    ]
    lines += [*describe_decoding_choices(records), *_device_notes(records), describe_revisions(records)]
    lines += [*_command_line_notes(records), *_differing_flags_notes(records)]
    lines += difference_notes(records)
    if pretraining := records[0].provenance.initialization.dataset:
        lines.append(f"trained on {pretraining} first")
    if any(len(group) > 1 for group in _group_by_model(records)):
        lines.append(SPREAD_NOTE)
    if any(map(has_diverged, records)):
        lines.append(DIVERGED_NOTE)
    if changed := [record.name for record in records if record.accepted_changes]:
        lines.append(f"*: {ENVIRONMENTS_NOTE}: {', '.join(changed)}")
    return lines


def _command_line_notes(records: list[RunRecord]) -> list[str]:
    """Return the note on flags of training that the user added to those of configs/, by model; nothing without any."""
    given = dict.fromkeys(
        " ".join([record.model, *(format_flag(flags, name) for name in flags)])
        for record in records
        if (flags := join_flag_values(parse_flags(record.extra_flags, RUN_RECORD)))
    )
    return [f"trained with flags from the command line: {'; '.join(given)}"] if given else []


def _differing_flags_notes(records: list[RunRecord]) -> list[str]:
    """Return the note on flags of training that differ between models beyond those of configs/models.toml.

    The tables of papers refuse such runs.
    """
    by_model = {record.model: record.provenance.flags for record in records}
    names = dict.fromkeys(name for flags in by_model.values() for name in flags if not MODEL_FLAGS.fullmatch(name))
    differences = []
    for name in names:
        models: dict[str, list[str]] = {}
        for model, flags in by_model.items():
            models.setdefault(format_flag(flags, name), []).append(model)
        if len(models) > 1:
            differences.append(", ".join(f"{flag} ({', '.join(found)})" for flag, found in models.items()))
    return [f"the models differ in flags of training: {'; '.join(differences)}"] if differences else []


def _device_notes(records: list[RunRecord]) -> list[str]:
    """Return what the runs were trained on, and which models on what if there are several devices or precisions."""
    models: dict[str, list[str]] = {}
    for record in records:
        models.setdefault(str(record.provenance.environment.device), []).append(record.model)
    what = "tokens/s: target tokens per second in training"
    if len(models) == 1:
        return [f"{what}, on {next(iter(models))}"]
    by_device = [f"{device}: {', '.join(dict.fromkeys(names))}" for device, names in sorted(models.items())]
    return [
        f"{what}, on {'; '.join(by_device)}",
        "speeds were measured on different devices or in different precisions and cannot be compared",
    ]


def _group_by_model(records: Iterable[RunRecord]) -> list[list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.model, []).append(record)
    return list(groups.values())
