"""Activations of the feed-forward layer, the claims of [AF]: validation loss and BLEU by variant."""

from collections.abc import Sequence

from relumt.tables.experiments import IWSLT, by_preset
from relumt.tables.measures import BLEU_TOKENIZED, VALIDATION_LOSS, Measure
from relumt.tables.runs import Run
from relumt.tables.score_table import Column, ScoreTable

VARIANTS = ("relu", "relu2", "aptx1", "relu_gt", "swiglu", "geglu", "gelu", "swish", "mish")
"""Names in FEEDFORWARDS: the baseline, the variants that [AF] compares, the others."""


def num_parameters(run: Run) -> float | None:
    """Return the number of parameters of the model; None before training has ended."""
    return run.record.training.parameters if run.record.training else None


class ParameterCount(Measure):
    """The number of parameters, which does not depend on the seed."""

    def format_mean(self, runs: Sequence[Run]) -> str:
        """Return the number without a standard deviation; "" without values."""
        values = self.values(runs)
        return format(values[0], self.format_spec) if values else ""


PARAMETERS = ParameterCount("parameters", num_parameters, ",")


TABLES = (
    ScoreTable(
        "AF",
        "activations",
        caption="feed-forward activations, the claims of [AF]",
        rows={name: f"ffn_{name}" for name in VARIANTS},
        columns={
            preset: tuple(Column(dataset, measure) for measure in (VALIDATION_LOSS, BLEU_TOKENIZED, PARAMETERS))
            for preset, dataset in by_preset(IWSLT).items()
        },
        baseline="relu",
        notes=(
            "[AF] trains an encoder to classify reviews (IMDB); these models translate",
            "[AF] puts aptx1 above relu2, and swiglu above relu2 above relu",
            "swiglu and geglu have two thirds of the slots, so they have about as many parameters as the others",
            "p tests the sentences of the test set; it says nothing about how much another seed would change the BLEU",
        ),
    ),
)
