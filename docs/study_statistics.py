"""Print how models differ from softmax over seeds, from the scores by seed in docs/results/*.json.

    python docs/study_statistics.py

A difference is the mean over the seeds that both models have, with its 95% interval (paired, Student's t) from three
seeds on. p-values are those of Dunnett's test, which counts all models of the table.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import mean

from figures import EXPERIMENTS, MIN_SEEDS_OF_INTERVALS
from results import show

from relumt.papers.rendering import format_p_value
from relumt.papers.seed_statistics import confidence_interval, dunnett_p_values

TABLES = {"scores": "multi30k", "scores_iwslt14": "iwslt14"}
"""Table of scores by seed -> table of means and differences, in relu_or_softmax.json."""

MEASURES = ("validation loss", "validation BLEU", "test BLEU")

GAP_TABLES = {"iwslt14": (*MEASURES, "TED 2013", "TED 2014", "TED 2013 and 2014"), "multi30k": MEASURES}
"""Table of scores by seed in gap.json -> its measures, whose differences are in the table `differences`."""

Scores = Sequence[Decimal | None]
"""A score for each seed, None if it was not trained."""


def main() -> None:
    """Print the rows of all tables."""
    for scores in TABLES:
        print(f"{scores}: validation BLEU, p, test BLEU, p")
        for model, cells in rows(scores):
            print(f"  {model}: {', '.join(cells)}")
    print("gap:", *(f"{', '.join(measures)} of {table};" for table, measures in GAP_TABLES.items()))
    for model, cells in gap_rows():
        print(f"  {model}: {', '.join(cells)}")


def rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each model of a table of scores but softmax, with its differences and p-values."""
    softmax, models = scores_by_seed("relu_or_softmax", table)
    cells: dict[str, list[str]] = {model: [] for model in models}
    for measure in MEASURES[1:]:
        scores = [list(map(float, found[measure])) for found in (softmax, *models.values())]
        p_values = dunnett_p_values(scores[1:], scores[0])
        for (model, found), p_value in zip(models.items(), p_values, strict=True):
            cells[model].append(difference(found[measure], softmax[measure]))
            cells[model].append("" if p_value is None else format_p_value(p_value))
    yield from cells.items()


def gap_rows() -> Iterator[tuple[str, list[str]]]:
    """Yield each model of gap.json but softmax, with its differences in each corpus, "" without runs."""
    tables = {table: scores_by_seed("gap", table) for table in GAP_TABLES}
    for model in dict.fromkeys(model for _, models in tables.values() for model in models):
        cells = [
            difference(models[model][measure], softmax[measure]) if model in models else ""
            for table, (softmax, models) in tables.items()
            for measure in GAP_TABLES[table]
        ]
        yield model, cells


def scores_by_seed(experiment: str, table: str) -> tuple[dict[str, Scores], dict[str, dict[str, Scores]]]:
    """Return measure -> scores for softmax, and for each other model of a table."""
    section = EXPERIMENTS[experiment]["tables"][table]
    columns = list(section["columns"])[1:]
    models = {model: dict(zip(columns, cells, strict=True)) for model, cells in section["rows"].items()}
    return models.pop("softmax"), models


def difference(scores: Scores, baseline: Scores) -> str:
    """Return the mean difference, with its interval if there are seeds enough; "" without a common seed."""
    pairs = [(own, other) for own, other in zip(scores, baseline, strict=True) if own is not None and other is not None]
    if not pairs:
        return ""
    differences = [float(own - other) for own, other in pairs]
    interval = confidence_interval(differences) if len(differences) >= MIN_SEEDS_OF_INTERVALS else None
    spec = f"z.{-int(pairs[0][0].as_tuple().exponent)}f"
    numbers = [show(Decimal(number), spec) for number in (mean(differences), *(interval or ()))]
    return ("{} ({} to {})" if interval else "{}").format(*numbers)


if __name__ == "__main__":
    main()
