"""Columns that compare each row with its baseline over seeds: difference, interval, p-values, seeds needed."""

from collections.abc import Mapping, Sequence

from relumt.tables.measures import Measure
from relumt.tables.rendering import format_p_value
from relumt.tables.runs import Run, any_diverged
from relumt.tables.seed_statistics import MAX_SEEDS, SeedComparison, compare_seeds, dunnett_p_values, holm

MIN_SEEDS = 2
"""Minimum number of common seeds for an interval."""

NOTE = (
    "over seeds: mean difference with its 95% interval (paired, Student's t); p of an exact two-sided sign-flip test, "
    "which is at least 2^(1 − seeds), with Holm's correction for the rows of the column; p of Dunnett's test, which is "
    "corrected too, but assumes normal scores with one standard deviation for all rows; and the number of seeds that "
    "such a difference would need for p < 0.05 in about four of five studies by the sign-flip test"
)


def seed_columns(
    baselines: Mapping[str, str], runs: Mapping[str, Sequence[Run]], measure: Measure
) -> list[tuple[str, list[str]]]:
    """Return titles and cells, by row; nothing if no row has enough seeds in common with its baseline.

    Args:
        baselines: row -> the row that it is compared with; a row that is its own baseline has empty cells.
        runs: row -> its runs.
        measure: what is compared.
    """
    pairs = {
        row: pair
        for row, baseline in baselines.items()
        if row != baseline and (pair := common_scores(runs[row], runs[baseline], measure))
    }
    compared = {row: compare_seeds(*pair, comparisons=len(pairs)) for row, pair in pairs.items()}
    if not compared:
        return []
    corrected = dict(zip(compared, holm([comparison.p_value for comparison in compared.values()]), strict=True))
    pooled = pooled_p_values(baselines, pairs)
    titles = ["difference over seeds", "p over seeds", "Dunnett's p", "seeds needed"]
    cells = [[""] * len(titles) for _ in baselines]
    for cells_of_row, row in zip(cells, baselines, strict=True):
        if row in compared:
            p_value = pooled[row]
            cells_of_row[:] = [
                format_difference(compared[row], measure),
                format_p_value(corrected[row]),
                "" if p_value is None else format_p_value(p_value),
                format_needed(compared[row]),
            ]
    return [(title, list(column)) for title, column in zip(titles, zip(*cells, strict=True), strict=True)]


def pooled_p_values(
    baselines: Mapping[str, str], pairs: Mapping[str, tuple[dict[int, float], dict[int, float]]]
) -> dict[str, float | None]:
    """Return the p-value of Dunnett's test for each row, with all seeds; None without variation.

    Args:
        baselines: row -> the row that it is compared with; rows with the same one are tested together.
        pairs: row -> its scores and those of its baseline, seed -> score.
    """
    p_values: dict[str, float | None] = {}
    for baseline in dict.fromkeys(baselines[row] for row in pairs):
        rows = [row for row in pairs if baselines[row] == baseline]
        scores = [list(pairs[row][0].values()) for row in rows]
        p_values |= zip(rows, dunnett_p_values(scores, list(pairs[rows[0]][1].values())), strict=True)
    return p_values


def describe_common_seeds(baselines: Mapping[str, str], runs: Mapping[str, Sequence[Run]], measure: Measure) -> str:
    """Name the common seeds of each row whose seeds differ from its baseline's; "" if there is no such row.

    The arguments are those of `seed_columns`.
    """
    described = []
    for row, baseline in baselines.items():
        pair = common_scores(runs[row], runs[baseline], measure)
        if pair and pair[0].keys() != pair[1].keys():
            common = sorted(pair[0].keys() & pair[1].keys())
            described.append(f"{row} with {baseline} over seeds {', '.join(map(str, common))}")
    return "; ".join(described)


def common_scores(
    runs: Sequence[Run], baselines: Sequence[Run], measure: Measure
) -> tuple[dict[int, float], dict[int, float]] | None:
    """Return the scores of two models by seed; None if one diverged or they have too few seeds in common."""
    if any_diverged([*runs, *baselines]):
        return None
    scores, others = (
        {run.seed: value for run in group if (value := measure.value(run)) is not None} for group in (runs, baselines)
    )
    return (scores, others) if len(scores.keys() & others.keys()) >= MIN_SEEDS else None


def format_difference(comparison: SeedComparison, measure: Measure) -> str:
    """Return the mean difference and its interval, as in "-0.35 (-1.20 to +0.50)"."""
    low, high = comparison.interval or (comparison.difference, comparison.difference)
    spec = f"+{measure.format_spec}"
    return f"{comparison.difference:{spec}} ({low:{spec}} to {high:{spec}})"


def format_needed(comparison: SeedComparison) -> str:
    """Return the number of seeds needed; without a difference no number is enough."""
    return str(comparison.seeds_needed) if comparison.seeds_needed else f"> {MAX_SEEDS}"
