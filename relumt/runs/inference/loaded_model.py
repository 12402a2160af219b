"""Load a trained model with its data, and read test sets by forced decoding: the decoder is fed the references."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import LanguagePairDataset
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from fairseq.utils import move_to_cuda, resolve_max_positions
from omegaconf import OmegaConf
from torch import Tensor
from torch.utils.data import Subset

import relumt
from relumt.errors import UserError
from relumt.plugin.checkpoints.loading import shorten_message
from relumt.runs.inference.export import WEIGHTS, is_model_folder, read_model
from relumt.runs.record import data_bin_of_checkpoint, find_preparation
from relumt.runs.run_config import find_checkpoint

SHUFFLE_SEED = 1
"""Seed of the permutation in `LoadedModel.shuffle_targets`."""

TokenPair = tuple[Tensor, Tensor]
"""Token indices of source and target, each with its end-of-sentence symbol."""


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint's model in evaluation mode, with the fairseq task that holds its data and dictionaries.

    Attributes:
        path: path of the checkpoint.
        model: the model, on the GPU if `cuda`.
        task: a translation task on the data-bin.
        cuda: whether to compute on the GPU.
    """

    path: Path
    model: FairseqEncoderDecoderModel
    task: FairseqTask
    cuda: bool

    @property
    def max_positions(self) -> tuple[int, int]:
        """The longest source and target that the model can read."""
        return resolve_max_positions(self.task.max_positions(), self.model.max_positions())

    @property
    def document_length(self) -> int:
        """The most tokens in the chunks of documents that the model was trained on; 0 for a model of sentences."""
        return getattr(self.task.cfg, "document_length", 0)

    @property
    def separators(self) -> tuple[Tensor, Tensor]:
        """The index of the token between sentences of a chunk in source and target, [1] each, or [0] without one."""
        if not self.document_length:
            return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        return self.task.separator(self.task.source_dictionary), self.task.separator(self.task.target_dictionary)

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the model; shared ones count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def load_subset(self, subset: str) -> int:
        """Load a subset of the data and return its number of sentence pairs.

        Raises:
            UserError: the data has no such subset, or it is empty or damaged.
        """
        data = Path(self.task.cfg.data)
        # Checked first, because fairseq's reader prints a traceback when it is deleted.
        if empty := [path for path in data.glob(f"{escape(subset)}.*") if path.is_file() and not path.stat().st_size]:
            raise UserError(f"{empty[0]}: an empty file; prepare the data-bin again with sentences in '{subset}'")
        try:
            self.task.load_dataset(subset)
            dataset = self.task.dataset(subset)
            if len(dataset):
                dataset[len(dataset) - 1]  # of a file that is cut off, fairseq reads the sentences before
        except (AssertionError, ValueError, struct.error) as error:
            raise UserError(f"{data}: '{subset}' is damaged ({error}); prepare the data-bin again") from None
        except FileNotFoundError:
            raise UserError(
                f"{self.task.cfg.data}: no subset '{subset}' for {self.task.cfg.source_lang}-"
                f"{self.task.cfg.target_lang}; name another --subset, or prepare a data-bin that has it"
            ) from None
        return len(dataset)

    def shuffle_targets(self, subset: str) -> str:
        """Add a subset that pairs each source with the target of another pair, and return its name.

        The permutation is a single cycle over the pairs within `max_positions`, so no target stays in place and both
        subsets contain the same sentences. It is the same for all models with the same `max_positions`.
        """
        dataset = self.task.dataset(subset)
        cycle = np.random.default_rng(SHUFFLE_SEED).permutation(self.fitting_indices(subset))
        new_target = np.arange(len(dataset))
        new_target[cycle] = np.roll(cycle, 1)
        name = f"{subset}, targets shuffled"
        self.task.datasets[name] = LanguagePairDataset(
            dataset.src, dataset.src_sizes, dataset.src_dict, Subset(dataset.tgt, new_target.tolist()),
            dataset.tgt_sizes[new_target], dataset.tgt_dict, left_pad_source=dataset.left_pad_source,
            left_pad_target=dataset.left_pad_target, shuffle=False,
        )  # fmt: skip
        return name

    def fitting_indices(self, subset: str) -> np.ndarray:
        """Return the indices of the pairs of a loaded subset that are within `max_positions`."""
        dataset = self.task.dataset(subset)
        return dataset.filter_indices_by_size(np.arange(len(dataset)), self.max_positions)[0]

    def batches(self, subset: str, max_tokens: int) -> Iterator[dict[str, Any]]:
        """Yield fairseq's batches of a loaded subset on the model's device, without pairs beyond `max_positions`."""
        dataset = self.task.dataset(subset)
        batches = self.task.get_batch_iterator(
            dataset,
            # fairseq rejects a batch size smaller than the longest sentence.
            max_tokens=max([max_tokens, *(dataset.num_tokens(i) for i in self.fitting_indices(subset))]),
            max_positions=self.max_positions,
            ignore_invalid_inputs=True,
        ).next_epoch_itr(shuffle=False)
        for sample in batches:
            yield self.to_device(sample)

    def to_device(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Move a batch to the model's device."""
        return move_to_cuda(sample) if self.cuda else sample

    def collate_sources(self, sources: Sequence[Tensor]) -> dict[str, Any]:
        """Return a batch without targets on the model's device; see `collate`."""
        dataset = self.task.build_dataset_for_inference(sources, [len(x) for x in sources])
        return self.to_device(dataset.collater([dataset[index] for index in range(len(dataset))]))

    def collate(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> dict[str, Any]:
        """Return a batch on the model's device. fairseq sorts it; its "id" holds the original positions.

        Args:
            sources: token indices with the end-of-sentence symbol.
            targets: the same for the target side.
        """
        dataset = LanguagePairDataset(
            sources, [len(x) for x in sources], self.task.source_dictionary, targets, [len(x) for x in targets],
            self.task.target_dictionary, shuffle=False,
        )  # fmt: skip
        return self.to_device(dataset.collater([dataset[index] for index in range(len(dataset))]))

    def target_log_probs(self, sample: dict[str, Any]) -> Tensor:
        """Return the log-probability of every target token of a batch, [B, T]."""
        log_p = self.model.get_normalized_probs(self.model(**sample["net_input"]), log_probs=True)
        return log_p.gather(-1, sample["target"][..., None]).squeeze(-1)  # [B, T, vocabulary] -> [B, T]

    @torch.no_grad()
    def force_decode(self, sample: dict[str, Any]) -> None:
        """Run the model on a batch and its references up to the last layer, without the output projection.

        Raises:
            UserError: the output of the last layer is not finite.
        """
        features, _ = self.model(**sample["net_input"], features_only=True)
        if not features[sample["target"].ne(self.task.target_dictionary.pad())].isfinite().all():
            raise UserError(
                f"{self.path}: the decoder's output is not finite, so training diverged; choose another checkpoint"
            )


def load_model(checkpoint_or_run: Path, data: Path | None, cpu: bool) -> tuple[LoadedModel, Path]:
    """Load a checkpoint, a run's scored checkpoint or an exported model; return the model and the data-bin.

    Args:
        checkpoint_or_run: a checkpoint file, the folder of a run, or a folder that `write_model` has written to.
        data: data-bin; None for what the run keeps of the one that it was trained on, without its texts, or for the
            folder of an exported model.
        cpu: do not use a GPU.

    Raises:
        UserError: the checkpoint or the data-bin is missing, damaged or contains code, or they do not fit together.
    """
    relumt.register()
    state = None
    if is_model_folder(checkpoint_or_run):
        path, data = checkpoint_or_run / WEIGHTS, data or checkpoint_or_run
        state = read_model(checkpoint_or_run)
        state["cfg"]["task"]["data"] = str(data)
        # As fairseq does when it loads a checkpoint. Without the flag, OmegaConf refuses the namespace in it.
        state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
    else:
        path = find_checkpoint(checkpoint_or_run)
        data = data or find_preparation(path)
    if not data.is_dir():
        raise UserError(
            f"{data}: no such data-bin; if it was moved, give its path with --data, else prepare it with relumt prepare"
        )
    try:
        (model,), _, task = load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(data)}, state=state)
    except (FileNotFoundError, ValueError) as error:  # ValueError: a dictionary that is damaged
        raise UserError(
            f"{data}: not the data of {path} ({shorten_message(error)}); give its own data-bin with --data"
        ) from None
    except RuntimeError as error:
        raise UserError(
            f"{path}: does not fit the data in {data}, or comes from another version of relumt "
            f"({shorten_message(error)})"
        ) from None
    cuda, model = torch.cuda.is_available() and not cpu, model.eval()
    return LoadedModel(path, model.cuda() if cuda else model, task, cuda), data


def with_texts(checkpoint_or_run: Path, data: Path | None) -> Path | None:
    """Return the `data` with which `load_model` can load subsets, too: of a run, its data-bin.

    Raises:
        UserError: the checkpoint is missing, or belongs to no run.
    """
    if data or is_model_folder(checkpoint_or_run):
        return data
    return data_bin_of_checkpoint(find_checkpoint(checkpoint_or_run))


def require_model(path: Path) -> None:
    """Raise UserError if `load_model` would find neither a checkpoint nor an exported model."""
    if not is_model_folder(path):
        find_checkpoint(path)
