"""The four tasks: how each is read, modeled, trained and scored."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from relumt.one_layer import adding, iam, imdb, mnist
from relumt.one_layer.examples import Splits
from relumt.one_layer.models import AddingModel, DigitModel, ReviewModel, WordModel
from relumt.one_layer.scoring import accuracy, ctc_loss, edit_distances, squared_error
from relumt.one_layer.settings import TaskSettings


@dataclass(frozen=True)
class Task:
    """A task of [IN] Table 1.

    Attributes:
        load: reads the data in a folder; raises UserError if it is missing or damaged.
        require_data: raises UserError unless the data is in a folder, without reading it.
        model: takes the settings, the name of a mechanism and the number of symbols.
        loss: function of outputs and targets, to train with.
        score: function of outputs and targets, metric -> value; the first metric decides.
        higher_is_better: whether that metric is an accuracy.
    """

    load: Callable[[TaskSettings, Path], Splits]
    require_data: Callable[[Path], Any]
    model: Callable[[TaskSettings, str, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], dict[str, float]]
    higher_is_better: bool

    def decisive(self, scores: dict[str, float]) -> float:
        """Return the value of the metric that decides, negated where lower is better."""
        value = next(iter(scores.values()))
        return value if self.higher_is_better else -value


def _draw_sequences(settings: TaskSettings, _: Path) -> Splits:
    return adding.load(settings)


TASKS: dict[str, Task] = {
    "adding": Task(_draw_sequences, lambda _: None, AddingModel, F.mse_loss, squared_error, higher_is_better=False),
    "mnist": Task(mnist.load, mnist.required_files, DigitModel, F.cross_entropy, accuracy, higher_is_better=True),
    "imdb": Task(imdb.load, imdb.require_data, ReviewModel, F.cross_entropy, accuracy, higher_is_better=True),
    "iam": Task(iam.load, iam.find_list, WordModel, ctc_loss, edit_distances, higher_is_better=False),
}
"""Name on the command line -> task."""
