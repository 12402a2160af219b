"""Print how models differ from softmax over seeds, from the tables of scores by seed in docs/results/.

    python docs/study_statistics.py

Each table has, by model, mean differences from softmax with their 95% intervals (paired, Student's t), the p-values of
Dunnett's test, and the number of seeds that such a difference in test BLEU would need to be significant by an exact
sign-flip test (`relumt/papers/seed_statistics.py`). Holm's and Dunnett's corrections count all models of the table.
"""

from collections.abc import Mapping, Sequence

from figures import table

from relumt.papers.rendering import format_p_value
from relumt.papers.seed_statistics import MAX_SEEDS, compare_seeds, dunnett_p_values

PAGES = {
    "relu_or_softmax": "| model | seed | best validation loss",
    "relu_or_softmax_iwslt14": "| | seed | best validation loss",
}
"""Page -> beginning of its table of scores by seed."""

HEADER = ("", "best validation loss", "validation BLEU", "BLEU", "p, validation BLEU", "p, BLEU", "seeds needed")
DECIMALS = {"loss": 3, "validation": 2, "test": 2}

Scores = dict[str, dict[int, float]]
"""Model -> seed -> score."""


def main() -> None:
    """Print a Markdown table for each page."""
    for page in PAGES:
        print(f"docs/results/{page}.md\n")
        print("\n".join(f"| {' | '.join(row)} |" for row in (HEADER, ["---"] * len(HEADER), *rows(page))), end="\n\n")


def rows(page: str) -> list[list[str]]:
    """Return the cells of each model but softmax."""
    scores = read_scores(page)
    models = [model for model in scores["test"] if model != "softmax"]
    differences = [format_differences(by_model, models, DECIMALS[measure]) for measure, by_model in scores.items()]
    p_values = [format_p_values(scores[measure], models) for measure in ("validation", "test")]
    baseline = scores["test"]["softmax"]
    needed = [compare_seeds(scores["test"][model], baseline, len(models)).seeds_needed for model in models]
    columns = [models, *differences, *p_values, [str(number or f"> {MAX_SEEDS}") for number in needed]]
    return [list(row) for row in zip(*columns, strict=True)]


def format_differences(scores: Scores, models: Sequence[str], decimals: int) -> list[str]:
    """Return each model's mean difference from softmax and its interval, as in "−0.29 (−1.60 to 1.01)"."""
    compared = [compare_seeds(scores[model], scores["softmax"]) for model in models]
    numbers = [(found.difference, *(found.interval or 2 * (found.difference,))) for found in compared]
    cells = [[f"{number:.{decimals}f}".replace("-", "−") for number in row] for row in numbers]
    return [f"{difference} ({low} to {high})" for difference, low, high in cells]


def format_p_values(scores: Scores, models: Sequence[str]) -> list[str]:
    """Return each model's p-value of Dunnett's test; "" if no scores differ by seed."""
    found = dunnett_p_values([list(scores[model].values()) for model in models], list(scores["softmax"].values()))
    return ["" if p_value is None else format_p_value(p_value) for p_value in found]


def read_scores(page: str) -> Mapping[str, Scores]:
    """Return the validation loss, validation BLEU and test BLEU of a page, by measure, model and seed."""
    scores: dict[str, Scores] = {measure: {} for measure in DECIMALS}
    _, *by_seed = table(page, PAGES[page])
    for model, seed, *values in by_seed:
        for measure, value in zip(DECIMALS, values[:3], strict=True):
            scores[measure].setdefault(model, {})[int(seed)] = float(value)
    return scores


if __name__ == "__main__":
    main()
