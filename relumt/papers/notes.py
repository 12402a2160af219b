"""The lines below tables: what the runs have in common, and in what they differ without being incomparable.

Each function returns notes about runs of one dataset, none if there is nothing to say.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from relumt.papers.comparability import METRIC_TITLES
from relumt.papers.rendering import DIVERGED
from relumt.papers.runs import MIN_BLEU, Run, any_diverged
from relumt.runs.flags import format_flag
from relumt.runs.record import RUN_RECORD
from relumt.runs.run_config import num_averaged

DIVERGED_NOTE = (
    f"{DIVERGED}: a seed diverged (no finite gradient was left), or hardly learned anything (BLEU is below "
    f"{MIN_BLEU:g})"
)

ENVIRONMENTS_NOTE = (
    f"trained or evaluated in several environments, or in part with other settings (`accepted_changes` in {RUN_RECORD})"
)

SPREAD_NOTE = "±: standard deviation over seeds"


def describe_runs(dataset: str, runs: Sequence[Run], subsets: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return the notes below a paper's table about its runs on a dataset, which may be none.

    Args:
        dataset: its name, with which most of the notes begin.
        runs: its runs.
        subsets: the subsets that the table shows measures of.
        metrics: the scores that it shows.
    """
    if not runs:
        return []
    about = [
        f"{' and '.join(subsets)} set, {describe_seeds(runs)}",
        describe_revisions(runs),
        *decoding_notes(runs),
        *_analysis_revisions(runs),
        *added_flags_notes(runs),
        *initialization_notes(runs),
    ]
    signatures = [f"{title}, {dataset}: {signature}" for title, signature in signature_of(runs, metrics).items()]
    prefixed = [f"{dataset}: {note}" for note in about]
    return [*prefixed, *difference_notes(runs), *signatures, *diverged_note(runs), *accepted_changes_note(runs)]


def describe_seeds(runs: Sequence[Run]) -> str:
    """Return the seeds of all runs, and the models that lack some of them."""
    seeds = sorted({run.seed for run in runs})
    by_model: dict[str, set[int]] = {}
    for run in runs:
        by_model.setdefault(str(Path(run.experiment.variant, run.experiment.model)), set()).add(run.seed)
    incomplete = [model for model, found in by_model.items() if len(found) < len(seeds)]
    listed = f"seeds {', '.join(map(str, seeds))}"
    return f"{listed}; fewer of {', '.join(incomplete)}" if incomplete else listed


def describe_revisions(runs: Sequence[Run]) -> str:
    """Return the revisions of relumt that trained the runs, and those that translated with them if others did."""
    trained = dict.fromkeys(run.record.provenance.environment.relumt for run in runs)
    evaluations = [evaluation for run in runs for evaluation in run.record.evaluations.values()]
    translated = dict.fromkeys(evaluation.setup.environment.relumt for evaluation in evaluations)
    text = f"trained with {', '.join(trained)}"
    return text if translated.keys() <= trained.keys() else f"{text}; translated with {', '.join(translated)}"


def decoding_notes(runs: Sequence[Run]) -> list[str]:
    """Return notes on averaged checkpoints and chosen length penalties, by model and in the order of the runs."""
    setups = [(run.record.model, run.record.test_evaluation.setup) for run in runs if run.record.is_scored]
    averages = {count for _, setup in setups if (count := num_averaged(setup.checkpoint))}
    notes = [f"translated with the average of the last {count} checkpoints" for count in sorted(averages)]
    chosen: dict[str, dict[str, list[str]]] = {}
    for model, setup in setups:
        if choice := setup.length_penalty:
            title = f"length penalty chosen by BLEU on {choice.subset} from {choice.candidates}"
            chosen.setdefault(title, {}).setdefault(model, []).append(choice.chosen)
    for title, by_model in chosen.items():
        seeds = {model: found[:1] if len(set(found)) == 1 else found for model, found in by_model.items()}
        values = [f"{model} {', '.join(found)}" for model, found in seeds.items()]
        notes.append(f"{title}: {'; '.join(values)}")
    return notes


def _analysis_revisions(runs: Sequence[Run]) -> list[str]:
    """Return the note on the revisions of relumt that analyzed the runs, if others trained them."""
    analyses = [run.analysis for run in runs if run.experiment.needs_analysis and run.analysis]
    revisions = dict.fromkeys(analysis.versions["revision"] for analysis in analyses)
    trained = {run.record.provenance.environment.relumt for run in runs}
    return [] if revisions.keys() <= trained else [f"analyzed with {', '.join(revisions)}"]


def models_by(runs: Sequence[Run], describe: Callable[[Run], str]) -> dict[str, str]:
    """Return each text that `describe` gives to runs -> the models that get it."""
    models: dict[str, dict[str, None]] = {}
    for run in runs:
        models.setdefault(describe(run), {})[run.record.model] = None
    return {described: ", ".join(found) for described, found in models.items()}


def added_flags_notes(runs: Sequence[Run]) -> list[str]:
    """Return the note on flags of training that the user added to those of configs/ and of the experiments."""
    added = models_by(runs, lambda run: " ".join(format_flag(run.added_flags, name) for name in run.added_flags))
    given = [f"{flags} ({models})" for flags, models in added.items() if flags]
    return [f"trained with flags from the command line: {'; '.join(given)}"] if given else []


def initialization_notes(runs: Sequence[Run]) -> list[str]:
    """Return the note on the dataset of the initial weights, which is the same for all runs."""
    dataset = runs[0].record.provenance.initialization.dataset
    return [f"trained on {dataset} first"] if dataset else []


def difference_notes(runs: Sequence[Run]) -> list[str]:
    """Return the note on what differs between the environments of runs but does not make the runs incomparable."""
    environments = [run.record.provenance.environment for run in runs]
    scored_in = [run.record.test_evaluation.setup.environment for run in runs if run.record.is_scored]
    aspects: dict[str, Sequence[object]] = {
        "versions of packages": [environment.versions for environment in environments],
        "the code of relumt": [environment.revision.code for environment in environments],
        "the kind of device": [environment.device.name for environment in environments],
        "the backend of fp32 products": [environment.device.fp32_backend for environment in environments],
        "the kernels of attention": [environment.kernels for environment in environments],
        "versions of packages that scored them": [environment.versions for environment in scored_in],
        "the kind of device that translated": [environment.device.name for environment in scored_in],
    }
    differing = [aspect for aspect, values in aspects.items() if any(value != values[0] for value in values)]
    return [f"the runs differ in {' and '.join(differing)} (see {RUN_RECORD})"] if differing else []


def signature_of(runs: Sequence[Run], metrics: Sequence[str]) -> dict[str, str]:
    """Return title -> signature of the metrics by which any run is scored."""
    scored = {metric: [run.record for run in runs if run.record.has_metric(metric)] for metric in metrics}
    return {
        METRIC_TITLES.get(metric, metric): f"`{records[0].signature(metric)}`"
        for metric, records in scored.items()
        if records
    }


def diverged_note(runs: Sequence[Run]) -> list[str]:
    """Return the note that explains dashes, if a run diverged."""
    return [DIVERGED_NOTE] if any_diverged(runs) else []


def accepted_changes_note(runs: Sequence[Run]) -> list[str]:
    """Return the note that names the runs with accepted changes."""
    changed = [run.record.name for run in runs if run.record.accepted_changes]
    return [f"{ENVIRONMENTS_NOTE}: {', '.join(changed)}"] if changed else []


def unit_note(runs: Sequence[Run]) -> list[str]:
    """Return the note that says that attention was measured on words; nothing for subwords, the default."""
    is_of_words = any(run.analysis.unit == "words" for run in runs if run.analysis)
    return ["attention of words: weights of subwords are merged (relumt analyze --units words)"] if is_of_words else []
