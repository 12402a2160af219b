"""Made-up runs: their records, scored translations and analyses."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from relumt.analysis.collectors import TOP_PERCENTS
from relumt.analysis.record import (
    AlignmentErrors,
    AlignmentMetrics,
    AnalysisFile,
    AttentionMetrics,
    CheckpointAnalysis,
    FeedForwardMetrics,
    LayerAlignment,
    write_analysis,
)
from relumt.files import file_sha256
from relumt.papers import get_table
from relumt.papers.context import TableContext
from relumt.papers.experiments import Experiment
from relumt.papers.rendering import RenderedTable
from relumt.runs.evaluation_record import ExternalScore
from relumt.runs.record import RunRecord, load_record, save_record
from tests.runs.cases import SIGNATURES, scored_record, with_value

SIGNATURE = "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0"
SENTENCES = [
    f"the {noun} sees {number} of them in the {place} ."
    for number in range(10)
    for noun in ("dog", "cat", "cow")
    for place in ("park", "sea")
]
"""Ten times six sentences."""


def render(name: str, runs: Path, preset: str = "small"):
    return get_table(name).render(TableContext(name, runs, preset, out=runs / "plots"))


def find_experiments(name: str, preset: str = "small") -> dict[str, Experiment]:
    """Return the experiments of a table by model, or by variant/model if the runs have further flags."""
    return {
        str(Path(experiment.variant, experiment.model)): experiment
        for experiment in get_table(name).experiments(preset)
    }


def row(table: RenderedTable, name: str) -> list[str]:
    """Return the cells of the row that begins with `name`."""
    (found,) = (cells for cells in table.rows if cells[0] == name)
    return list(map(str, found))


def make_record(experiment: Experiment, seed: int = 1, bleu: float = 30.0, **flags: str) -> RunRecord:
    given = dict(zip(experiment.flags[::2], experiment.flags[1::2], strict=True)) | flags
    signatures = dict.fromkeys(SIGNATURES, SIGNATURE)
    return scored_record(experiment.dataset, experiment.model, seed, bleu, given, signatures)


def write_run(
    experiment: Experiment, runs: Path, record: RunRecord | None = None, analysis: CheckpointAnalysis | None = None
) -> Path:
    """Write run.json and analysis.json as the scripts do; return the folder of the run."""
    record = record or make_record(experiment)
    folder = experiment.folder(runs, record.seed)
    save_record(folder, record)
    if analysis is not None:
        write_analysis(AnalysisFile("test", [analysis]), folder / "analysis.json")
    return folder


def write_runs(
    name: str,
    runs: Path,
    bleu: Mapping[str, Sequence[float]],
    analysis: CheckpointAnalysis | None = None,
    wrong: Callable[[str, int], set[int]] | None = None,
) -> dict[str, Path]:
    """Write runs of a table, given the BLEU of seeds 1, 2, … by model as `find_experiments` names it.

    Given the wrong sentences by model and seed, write translations, too. Return the folder of each model's last seed.
    """
    experiments, folders = find_experiments(name), {}
    for model, scores in bleu.items():
        for seed, score in enumerate(scores, start=1):
            record = make_record(experiments[model], seed, score)
            folders[model] = write_run(experiments[model], runs, record, analysis)
            if wrong is not None:
                write_translations(folders[model], record, wrong(model, seed))
    return folders


def write_translations(folder: Path, record: RunRecord, wrong: set[int]) -> None:
    """Write references and hypotheses, which are wrong for these of six sentences, and name the files in the record."""
    hypotheses = ["nothing at all ." if n % 6 in wrong else line for n, line in enumerate(SENTENCES)]
    for name, lines in (("test.hyp.tok", hypotheses), ("test.ref.tok", SENTENCES)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    scored_files = {"bleu_tokenized": ("test.hyp.tok", "test.ref.tok")}
    save_record(folder, with_value(record, "evaluations.test.scored_files", scored_files))


def add_external_score(folder: Path, scores: list[float], metric: str = "comet", version: str = "comet 1") -> None:
    """Write what `relumt score` writes for these scores of segments."""
    path = folder / f"test.{metric}.scores"
    path.write_text("".join(f"{score}\n" for score in scores))
    added = ExternalScore(fmean(scores), "command", version, path.name, file_sha256(path), "sources")
    record = load_record(folder)
    save_record(folder, with_value(record, "evaluations.test.external", record.external_scores | {metric: added}))


def attention_layer(site: str, entropy=(1.0, 2.0), null=(0.1, 0.3), num_queries=100) -> AttentionMetrics:
    return AttentionMetrics(
        site,
        "Mechanism",
        num_queries,
        sparsity=[0.5, 0.7],
        null_rate=list(null),
        null_rate_shuffled=[0.2, 0.4],
        null_rate_variance=0.01,
        entropy=list(entropy),
        top_share={f"{p:g}": [p / 10, p / 5] for p in TOP_PERCENTS},
        distant_share=None if site == "cross" else [0.1, 0.2],
        stop_word_share=[0.3, 0.5],
        stop_word_rate=0.45,
        head_diversity={"normalized": 0.95, "1.0": 0.9, "0.5": 0.8, "0.25": 0.7, "0.1": 0.6},
    )


ALIGNED_LAYER = LayerAlignment(AlignmentErrors([44.0, 40.0], 50.0), AlignmentErrors([45.0, 47.0], 60.0))
ALIGNMENT = AlignmentMetrics(0, {"a": ALIGNED_LAYER, "b": ALIGNED_LAYER}, {})


def analysis(**changes) -> CheckpointAnalysis:
    """Return an analysis with everything that any table shows."""
    attention = {f"{site}.{n}": attention_layer(site) for site in ("encoder", "decoder", "cross") for n in range(2)}
    unchanged = {
        "name": "x",
        "path": "x.pt",
        "data": "data-bin",
        "sha256": "c",
        "versions": {"revision": "revision c"},
        "unit": "subwords",
        "num_pairs": 1,
        "num_pairs_too_long": 0,
        "attention": attention,
        "alignment": ALIGNMENT,
        "feedforward": {"encoder.layers.0": FeedForwardMetrics(32, 100, 0.1, 0.0, {"0.2": 0.3, "50": 0.9}, 0.01)},
        "activations": {},
        "data_sha256": "data",
        "num_parameters": 1,
    }
    return CheckpointAnalysis(**unchanged | changes)
