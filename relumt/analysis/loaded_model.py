"""Checkpoints opened to be looked at, and forced decoding: the model reads each reference as if it wrote it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import FairseqDataset, LanguagePairDataset
from fairseq.tasks import FairseqTask
from fairseq.utils import move_to_cuda, resolve_max_positions
from torch import Tensor, nn

import relumt
from relumt.checkpoints import load_checkpoint_safely, shorten_message
from relumt.errors import UserError
from relumt.runs.record import load_record

OF_A_RUN = ("checkpoint_best.pt", "checkpoint_last.pt")
"""What a run is judged by; the last where it was trained without validation."""

SHUFFLED_BY = 1
"""Seed of the order in which targets are shuffled."""


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint's model, in evaluation mode, and the task that has its dictionaries.

    Attributes:
        path: of the checkpoint.
        model: on the GPU if `cuda`.
        task: fairseq's translation task of the data to look at.
        cuda: whether there is a GPU to work on.
    """

    path: Path
    model: nn.Module
    task: FairseqTask
    cuda: bool

    def load(self, subset: str) -> int:
        """Load a subset of the data; returns its number of sentence pairs.

        Raises:
            UserError: the data has no such subset.
        """
        try:
            self.task.load_dataset(subset)
        except FileNotFoundError:
            raise UserError(
                f"{self.task.cfg.data}: no subset '{subset}' for {self.task.cfg.source_lang}-"
                f"{self.task.cfg.target_lang}; name another --subset, or make the data-bin with it"
            ) from None
        return len(self.task.dataset(subset))

    def shuffle_targets(self, subset: str) -> str:
        """Make a subset whose targets are those of other sentences, the same for every model; returns its name.

        No target stays where it was: each goes to the next of a random order of all. Pairs that the model cannot take
        are no part of that, so that the sentences read are those of `subset`; they have to be two or more.
        """
        dataset = self.task.dataset(subset)
        order = np.random.default_rng(SHUFFLED_BY).permutation(self.fitting(subset))
        of_next = np.arange(len(dataset))
        of_next[order] = np.roll(order, 1)
        name = f"{subset}, targets shuffled"
        self.task.datasets[name] = LanguagePairDataset(
            dataset.src, dataset.src_sizes, dataset.src_dict, Reordered(dataset.tgt, of_next),
            dataset.tgt_sizes[of_next], dataset.tgt_dict, left_pad_source=dataset.left_pad_source,
            left_pad_target=dataset.left_pad_target, shuffle=False,
        )  # fmt: skip
        return name

    @property
    def positions(self) -> tuple[int, int]:
        """How long a source and a target the model takes."""
        return resolve_max_positions(self.task.max_positions(), self.model.max_positions())

    def fitting(self, subset: str) -> np.ndarray:
        """Numbers of the pairs of a loaded subset that fit the model's positions."""
        dataset = self.task.dataset(subset)
        return dataset.filter_indices_by_size(np.arange(len(dataset)), self.positions)[0]

    def batches(self, subset: str, max_tokens: int) -> Iterator[dict[str, Any]]:
        """fairseq's batches of a loaded subset, on the model's device; pairs beyond its positions are left out."""
        dataset = self.task.dataset(subset)
        batches = self.task.get_batch_iterator(
            dataset,
            # fairseq refuses a sentence that is longer than a batch.
            max_tokens=max([max_tokens, *(dataset.num_tokens(i) for i in self.fitting(subset))]),
            max_positions=self.positions,
            ignore_invalid_inputs=True,
        ).next_epoch_itr(shuffle=False)
        for sample in batches:
            yield self.on_device(sample)

    def on_device(self, sample: dict[str, Any]) -> dict[str, Any]:
        """A batch where the model is."""
        return move_to_cuda(sample) if self.cuda else sample

    def batch_of(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> dict[str, Any]:
        """A batch, on the model's device, of token sequences with their ends; its "id" are their numbers."""
        dataset = LanguagePairDataset(
            sources, [len(x) for x in sources], self.task.source_dictionary, targets, [len(x) for x in targets],
            self.task.target_dictionary, shuffle=False,
        )  # fmt: skip
        return self.on_device(dataset.collater([dataset[number] for number in range(len(dataset))]))

    def log_probabilities(self, sample: dict[str, Any]) -> Tensor:
        """Of every target token of a batch, [B, T]."""
        log_p = self.model.get_normalized_probs(self.model(**sample["net_input"]), log_probs=True)
        return log_p.gather(-1, sample["target"][..., None]).squeeze(-1)

    @torch.no_grad()
    def decode(self, sample: dict[str, Any]) -> None:
        """Read a batch's sources and references, up to the last layer: what would be predicted is not computed.

        Raises:
            UserError: what the last layer gives is not finite.
        """
        features, _ = self.model(**sample["net_input"], features_only=True)
        if not features[sample["target"].ne(self.task.target_dictionary.pad())].isfinite().all():
            raise UserError(f"{self.path}: gives numbers that are not finite; its training diverged, take another one")


class Reordered(FairseqDataset):
    """A dataset's items in another order."""

    def __init__(self, items: FairseqDataset, order: np.ndarray) -> None:
        self.items = items
        self.order = order

    def __getitem__(self, index: int) -> Any:
        return self.items[self.order[index]]

    def __len__(self) -> int:
        return len(self.order)


def open_given(given: Path, data: Path | None, cpu: bool) -> tuple[LoadedModel, Path]:
    """Open what the user names, a checkpoint or a run's folder, on `data` or, for a run, its own; returns both.

    cpu: leave a GPU alone. Raises UserError as `find_checkpoint`, `data_of_run` and `open_checkpoint`.
    """
    path = find_checkpoint(given)
    data = data or data_of_run(given)
    return open_checkpoint(path, data, cuda=torch.cuda.is_available() and not cpu), data


def find_checkpoint(given: Path) -> Path:
    """The checkpoint that `given` names: itself, or of a run's folder the one that was scored, else the best one.

    Raises:
        UserError: it is not there.
    """
    candidates = [given / "checkpoints" / name for name in names_in(given)] if given.is_dir() else [given]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(f"{candidates[0]}: no such checkpoint; give a checkpoint_*.pt or a trained run's folder")


def names_in(run: Path) -> list[str]:
    """Names of the checkpoints by which a run is judged, the first that is there counts."""
    evaluation = (load_record(run) or {}).get("evaluation", {})
    return [*(of["checkpoint"] for of in evaluation.values()), *OF_A_RUN]


def data_of_run(given: Path) -> Path:
    """The data-bin that the run in folder `given` was trained on; raises UserError if `given` is no run."""
    record = load_record(given) if given.is_dir() else None
    if record is None:
        raise UserError(f"{given}: no run.json says what it was trained on; name a data-bin with --data")
    return Path(record["data_bin"])


def open_checkpoint(path: Path, data: Path, cuda: bool) -> LoadedModel:
    """Open a checkpoint on a data-bin.

    Raises:
        UserError: not a checkpoint, one that carries code, or one of another vocabulary than the data's.
    """
    relumt.register()
    load_checkpoint_safely(path)
    if not data.is_dir():
        raise UserError(f"{data}: no such data-bin; make it with data_prep/")
    try:
        (model,), _, task = load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(data)})
    except FileNotFoundError as error:
        raise UserError(
            f"{data}: not the data of {path} ({shorten_message(error)}); give its own with --data"
        ) from None
    except RuntimeError as error:
        raise UserError(
            f"{path}: does not fit the data in {data}, or is of another version of relumt ({shorten_message(error)})"
        ) from None
    model = model.eval()
    return LoadedModel(path, model.cuda() if cuda else model, task, cuda)
