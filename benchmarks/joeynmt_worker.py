"""Train and translate batches on request with JoeyNMT: a worker of training.py, run by a Python that has JoeyNMT.

    PYTHON benchmarks/joeynmt_worker.py BATCHES SETTINGS

SETTINGS is a `PeerSettings` in JSON. The model has the sizes of fairseq's and the batches are the same, token by token;
each training step is a step of JoeyNMT's TrainManager.
"""

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.config import parse_train_args
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.training import TrainManager
from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
from joeynmt.vocabulary import Vocabulary
from torch import Tensor
from worker_protocol import BEAM, Batches, serve

UNK, PAD, BOS, EOS = range(4)
"""Indices of JoeyNMT's special symbols."""

FROM_FAIRSEQ = torch.tensor([BOS, PAD, EOS, UNK])
"""Their order in fairseq's dictionaries."""


def joeynmt_vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary of `size` types, whose names do not matter."""
    symbols: dict[str, Any] = {
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": None,
    }
    indices: dict[str, Any] = {
        "unk_id": UNK,
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
        "sep_id": None,
        "lang_tags": [],
    }
    return Vocabulary([f"type{index}" for index in range(4, size)], SimpleNamespace(**symbols, **indices))


def stack_settings(settings: dict[str, Any], stack: str) -> dict[str, Any]:
    """Return JoeyNMT's configuration of the encoder or the decoder."""
    size = settings[f"{stack}_embed_dim"]
    return {
        "type": "transformer",
        "num_layers": settings[f"{stack}_layers"],
        "num_heads": settings[f"{stack}_attention_heads"],
        "embeddings": {"embedding_dim": size, "scale": True},
        "hidden_size": size,
        "ff_size": settings[f"{stack}_ffn_embed_dim"],
        "dropout": settings["dropout"],
        "layer_norm": "post",
    }


def joeynmt_model(settings: dict[str, Any]) -> Model:
    """Return a new model with dropout where fairseq's has it; JoeyNMT itself has one rate for all places."""
    source, target = (joeynmt_vocabulary(settings[f"{side}_types"]) for side in ("source", "target"))
    config = {stack: stack_settings(settings, stack) for stack in ("encoder", "decoder")}
    config |= {"tied_softmax": settings["tied_softmax"], "tied_embeddings": settings["tied_embeddings"]}
    model = build_model(config, source, target)
    model.loss_function = ("crossentropy", settings["label_smoothing"])
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = settings["attention_dropout"]
        elif isinstance(module, PositionwiseFeedForward):
            module.pwff_layer[2].p = settings["activation_dropout"]  # between the two linear layers
    return model


def training_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return JoeyNMT's configuration of training."""
    return {
        "optimizer": "adam",
        "adam_betas": settings["adam_betas"],
        "learning_rate": settings["learning_rate"],
        "learning_rate_min": 0.0,
        "learning_rate_warmup": settings["warmup_updates"],
        "scheduling": "warmupinversesquareroot",
        "weight_decay": settings["weight_decay"],
        "label_smoothing": settings["label_smoothing"],
        "normalization": "tokens",
        "batch_type": "token",
        "batch_size": 1,  # unused, since the batches are given
    }


def joeynmt_indices(tokens: Tensor) -> Tensor:
    """Translate fairseq's indices of the special symbols to JoeyNMT's and pad on the right; the others are equal."""
    rows = [row[row.ne(PAD)] for row in tokens]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return torch.where(padded < 4, FROM_FAIRSEQ[padded.clamp(max=3)], padded)


class JoeyNmtSystem:
    """A TrainManager and the batches that it trains on and translates."""

    def __init__(self, settings: dict[str, Any], batches: Batches, folder: Path) -> None:
        torch.manual_seed(1)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        half = settings["fp16"]
        self.autocast = {"device_type": self.device.type, "enabled": half} | ({"dtype": torch.float16} if half else {})
        self.manager = TrainManager(
            rank=0,
            model=joeynmt_model(settings).to(self.device),
            model_dir=folder,
            device=self.device,
            n_gpu=int(self.device.type == "cuda"),
            autocast=self.autocast,
            train_args=parse_train_args(training_settings(settings)),
        )
        self.manager.model.zero_grad()
        self.train_batches = [self.make_batch(batch, batch["target"]) for batch in batches["train"]]
        self.test_batches = [self.make_batch(batch, None) for batch in batches["test"]]
        self.lengths = batches["lengths"]

    def train(self, number: int) -> int:
        """Take a training step on a batch, as `TrainManager.train_and_validate` does; return its target tokens."""
        manager, batch = self.manager, self.train_batches[number]
        manager._train_step(batch)
        if manager.scaler is None:
            manager.optimizer.step()
        else:
            manager.scaler.step(manager.optimizer)
            manager.scaler.update()
        manager.scheduler.step(manager.stats.steps)
        manager.model.zero_grad()
        manager.stats.steps += 1
        return batch.ntokens

    def translate(self, number: int) -> int:
        """Translate a batch by beam search into sentences of the given length; return their tokens."""
        batch, length, model = self.test_batches[number], self.lengths[number], self.manager.model
        model.eval()
        batch.sort_by_src_length()
        # JoeyNMT's limits count </s> differently: the last of `length` steps ends every sentence.
        limits = {"min_output_length": length - 1, "max_output_length": length}
        output, _, _ = search(model, batch, beam_size=BEAM, beam_alpha=1.0, autocast=self.autocast, **limits)
        return int((output != PAD).sum())

    def make_batch(self, given: dict[str, Any], target: Tensor | None) -> Batch:
        """Return fairseq's batch as JoeyNMT collates it, with the target or without."""
        source = joeynmt_indices(given["net_input"]["src_tokens"])
        if target is not None:
            target = torch.nn.functional.pad(joeynmt_indices(target), (1, 0), value=BOS)
        lengths, indices = source.ne(PAD).sum(1), torch.arange(len(source))
        return Batch(source, lengths, None, target, None, indices, self.device, PAD, EOS, is_train=target is not None)


def main() -> None:
    """Load the batches, build the model and answer requests."""
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    path, settings = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        system = JoeyNmtSystem(json.loads(settings), torch.load(path), Path(folder))
        serve({"train": system.train, "translate": system.translate})


if __name__ == "__main__":
    main()
