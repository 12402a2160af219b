"""Print how models differ from softmax over seeds, from the tables of scores by seed in docs/results/.

    python docs/study_statistics.py

Each table has, by model, mean differences from softmax with their 95% intervals (paired, Student's t), the p-values of
Dunnett's test, and the number of seeds that such a difference in test BLEU would need to be significant by an exact
sign-flip test (`relumt/tables/seed_statistics.py`). Holm's and Dunnett's corrections count all models of the table.
"""

from collections.abc import Mapping

from figures import table

from relumt.tables.rendering import format_p_value
from relumt.tables.seed_statistics import MAX_SEEDS, compare_seeds, dunnett_p_values

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
    models = [model for model in scores["loss"] if model != "softmax"]
    baselines = {measure: by_model["softmax"] for measure, by_model in scores.items()}
    compared = {
        measure: {model: compare_seeds(scores[measure][model], baseline, len(models)) for model in models}
        for measure, baseline in baselines.items()
    }
    p_values = {
        measure: dunnett_p_values([list(scores[measure][model].values()) for model in models], list(baseline.values()))
        for measure, baseline in baselines.items()
    }
    printed = []
    for index, model in enumerate(models):
        differences = []
        for measure, decimals in DECIMALS.items():
            found = compared[measure][model]
            low, high = found.interval or (found.difference, found.difference)
            differences.append(f"{found.difference:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})")
        corrected = [format_p_value(p_values[measure][index] or 0) for measure in ("validation", "test")]
        needed = compared["test"][model].seeds_needed
        cells = [model, *differences, *corrected, str(needed or f"> {MAX_SEEDS}")]
        printed.append([cells[0], *(cell.replace("-", "−") for cell in cells[1:])])
    return printed


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
