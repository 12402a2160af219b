"""The columns that compare the rows of a table with their baselines: by translations, and over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from relumt.papers.context import MIN_CHANGED
from relumt.papers.measures import Measure
from relumt.papers.rendering import format_p_value
from relumt.papers.runs import Run, any_diverged
from relumt.papers.seed_statistics import SeedComparison, compare_seeds, dunnett_p_values, holm

P_VALUE_NOTES = {
    "bootstrap": "p: sacreBLEU's paired bootstrap, one-sided in the direction that was found: of equal systems, 11% "
    f"have p < 0.05; -: only 1 to {MIN_CHANGED - 1} lines differ",
    "randomization": "p: sacreBLEU's paired approximate randomization, two-sided; "
    f"-: only 1 to {MIN_CHANGED - 1} lines differ",
}
"""Test -> the note about p below a table."""

MIN_SEEDS = 2
"""Minimum number of common seeds for an interval."""

SEEDS_NOTE = (
    "over seeds: mean difference with its 95% interval (paired, Student's t); p of an exact two-sided sign-flip test, "
    "which is at least 2^(1 − seeds), with Holm's correction for the rows of the column; and p of Dunnett's test, "
    "which is corrected too, but assumes normal scores with one standard deviation for all rows"
)

TITLES = ("difference over seeds", "p over seeds", "Dunnett's p")

Scores = Mapping[int, float]
"""Seed -> score."""


@dataclass(frozen=True)
class BaselineColumns:
    """A column whose rows are compared with their baselines.

    Attributes:
        baselines: row -> the row that it is compared with; a row that is its own baseline has empty cells.
        runs: row -> its runs.
        measure: what is compared.
    """

    baselines: Mapping[str, str]
    runs: Mapping[str, Sequence[Run]]
    measure: Measure

    def p_values(self, test: str) -> list[str]:
        """Return the p-values of each row's translations, one per seed that both have; `test`: see TableContext."""
        return [
            "" if row == baseline else _format_p_values(self.runs[row], self.runs[baseline], self.measure.metric, test)
            for row, baseline in self.baselines.items()
        ]

    @cached_property
    def pairs(self) -> dict[str, tuple[Scores, Scores]]:
        """Row -> its scores and its baseline's, if neither diverged and they have MIN_SEEDS seeds in common."""
        scores: dict[str, Scores] = {}
        for row, runs in self.runs.items():
            values = {} if any_diverged(runs) else {run.seed: self.measure.value(run) for run in runs}
            scores[row] = {seed: value for seed, value in values.items() if value is not None}
        return {
            row: (scores[row], scores[baseline])
            for row, baseline in self.baselines.items()
            if row != baseline and len(scores[row].keys() & scores[baseline].keys()) >= MIN_SEEDS
        }

    def over_seeds(self) -> list[tuple[str, list[str]]]:
        """Return the titles and cells of the comparison over seeds; nothing if no row can be compared."""
        if not self.pairs:
            return []
        compared = [compare_seeds(*pair) for pair in self.pairs.values()]
        corrected = holm([comparison.p_value for comparison in compared])
        pooled = self._pooled_p_values()
        cells = {row: [""] * len(TITLES) for row in self.baselines}
        for row, comparison, p_value in zip(self.pairs, compared, corrected, strict=True):
            difference = self._format_difference(comparison)
            cells[row] = [difference, format_p_value(p_value), format_p_value(pooled[row])]
        return [(title, list(column)) for title, column in zip(TITLES, zip(*cells.values(), strict=True), strict=True)]

    def _pooled_p_values(self) -> dict[str, float | None]:
        """Return the p-value of Dunnett's test for each row, with all seeds; None without variation.

        Rows with the same baseline are tested together.
        """
        p_values: dict[str, float | None] = {}
        for baseline in dict.fromkeys(self.baselines[row] for row in self.pairs):
            pairs = {row: pair for row, pair in self.pairs.items() if self.baselines[row] == baseline}
            scores = [list(own.values()) for own, _ in pairs.values()]
            (_, others), *_ = pairs.values()
            p_values |= zip(pairs, dunnett_p_values(scores, list(others.values())), strict=True)
        return p_values

    def _format_difference(self, comparison: SeedComparison) -> str:
        """Return the mean difference and its interval, as in "-0.35 (-1.20 to +0.50)"."""
        numbers = (comparison.difference, *(comparison.interval or ()))
        return "{} ({} to {})".format(*(f"{number:+{self.measure.format_spec}}" for number in numbers))

    def describe_common_seeds(self) -> str:
        """Name the common seeds of each row whose seeds differ from its baseline's; "" if there is no such row."""
        described = []
        for row, (own, others) in self.pairs.items():
            if own.keys() != others.keys():
                common = ", ".join(map(str, sorted(own.keys() & others.keys())))
                described.append(f"{row} with {self.baselines[row]} over seeds {common}")
        return "; ".join(described)


def _format_p_values(systems: Sequence[Run], baselines: Sequence[Run], metric: str, test: str) -> str:
    """Return the p-value of each seed that both have, "-" for one without; "" if a seed of either diverged."""
    if any_diverged([*systems, *baselines]):
        return ""
    from relumt.papers.significance import p_values  # sacreBLEU is slow to import

    by_seed = p_values(systems, baselines, metric, test)
    formatted = {seed: format_p_value(p) or "-" for seed, p in by_seed.items()}
    return ", ".join(f"seed {seed}: {p}" if len(systems) > 1 else p for seed, p in formatted.items())
