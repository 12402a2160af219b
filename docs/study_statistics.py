"""Print how models differ from softmax over seeds, from the scores by seed in docs/results/relu_or_softmax.json.

    python docs/study_statistics.py

A row has mean differences from softmax with their 95% intervals (paired, Student's t) and the p-values of Dunnett's
test, which counts all models of the table, for validation and test BLEU.
"""

from collections.abc import Iterator

from figures import numbers
from results import load

from relumt.papers.rendering import format_p_value
from relumt.papers.seed_statistics import compare_seeds, dunnett_p_values

TABLES = {"scores": "multi30k", "scores_iwslt14": "iwslt14"}
"""Table of scores by seed -> table of means and differences."""

EXPERIMENT = "relu_or_softmax"


def main() -> None:
    """Print the rows of both corpora."""
    for scores in TABLES:
        print(f"{scores}: validation BLEU, p, test BLEU, p")
        for model, cells in rows(scores):
            print(f"  {model}: {', '.join(map(str, cells))}")


def rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each model but softmax with its differences and p-values."""
    models = [model for model in load("results")[EXPERIMENT]["tables"][table]["rows"] if model != "softmax"]
    cells: dict[str, list[str]] = {model: [] for model in models}
    for column in (1, 2):  # validation and test BLEU
        baseline, *scores = (numbers(EXPERIMENT, table, model)[column] for model in ("softmax", *models))
        p_values = dunnett_p_values(scores, baseline)
        for model, by_seed, p_value in zip(models, scores, p_values, strict=True):
            found = compare_seeds(dict(enumerate(by_seed)), dict(enumerate(baseline)))
            low, high = found.interval or (found.difference, found.difference)
            difference = f"{found.difference:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
            cells[model] += [difference, "" if p_value is None else format_p_value(p_value)]
    yield from cells.items()


if __name__ == "__main__":
    main()
