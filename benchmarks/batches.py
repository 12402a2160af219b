"""The batches that all systems of training.py train on and translate, and the settings of a peer of equal size."""

import itertools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq_worker import build_trainer
from worker_protocol import Batches

from relumt.errors import UserError

SENTENCES = 100
"""Sentences per batch of beam search."""

MODEL_SETTINGS = (
    *(f"{stack}_{size}" for stack in ("encoder", "decoder") for size in ("layers", "embed_dim", "ffn_embed_dim")),
    "encoder_attention_heads",
    "decoder_attention_heads",
    "dropout",
    "attention_dropout",
    "activation_dropout",
)
"""Fields of `PeerSettings` that fairseq's models have under the same name."""


@dataclass(frozen=True)
class PeerSettings:
    """What a system other than fairseq needs to build the same model and train it in the same way.

    Names are those of fairseq's flags; tied_embeddings: of source and target; tied_softmax: target embeddings and
    output layer.
    """

    source_types: int
    target_types: int
    encoder_layers: int
    encoder_embed_dim: int
    encoder_ffn_embed_dim: int
    encoder_attention_heads: int
    decoder_layers: int
    decoder_embed_dim: int
    decoder_ffn_embed_dim: int
    decoder_attention_heads: int
    tied_embeddings: bool
    tied_softmax: bool
    dropout: float
    attention_dropout: float
    activation_dropout: float
    label_smoothing: float
    learning_rate: float
    warmup_updates: int
    adam_betas: list[float]
    weight_decay: float
    fp16: bool


def first_batches(trainer: Any, count: int) -> list[dict[str, Any]]:
    """Return the first `count` batches of training, from as many epochs as it takes."""
    epochs = (trainer.get_train_iterator(epoch).next_epoch_itr(shuffle=True) for epoch in itertools.count(1))
    return list(itertools.islice(itertools.chain.from_iterable(epochs), count))


class Reference:
    """The data and the settings of a command line of fairseq-train, on the CPU: nothing is trained here."""

    def __init__(self, arguments: list[str]) -> None:
        self.trainer = build_trainer([*arguments, "--cpu"])

    def write_batches(self, path: Path, train: int, test: int) -> int:
        """Write `train` batches to train on and up to `test` batches to translate; return the number of the latter."""
        translated = self.test_batches(test)
        pad = self.trainer.task.target_dictionary.pad()
        lengths = [max(2, round(batch["target"].ne(pad).sum().item() / batch["nsentences"])) for batch in translated]
        torch.save(Batches(train=first_batches(self.trainer, train), test=translated, lengths=lengths), path)
        return len(translated)

    def test_batches(self, count: int) -> list[dict[str, Any]]:
        """Return up to `count` batches of the test set, from all of its lengths."""
        if count == 0:
            return []
        task = self.trainer.task
        task.load_dataset("test")
        iterator = task.get_batch_iterator(
            task.dataset("test"),
            max_sentences=SENTENCES,
            max_positions=self.trainer.model.max_positions(),
            ignore_invalid_inputs=True,
        )
        batches = [batch for batch in iterator.next_epoch_itr(shuffle=False) if batch]
        return batches[:: max(1, len(batches) // count)][:count]

    def peer_settings(self, fp16: bool) -> dict[str, Any]:
        """Return `PeerSettings` as a dictionary; raise UserError if a peer would not be trained in the same way."""
        model, config = self.trainer.cfg.model, self.trainer.cfg
        needed = (config.optimizer, "adam_betas"), (config.lr_scheduler, "warmup_updates")
        if not all(hasattr(settings, name) for settings, name in (*needed, (config.criterion, "label_smoothing"))):
            raise UserError(
                "--joeynmt needs --optimizer adam, --lr-scheduler inverse_sqrt and label smoothing; add them"
            )
        return asdict(
            PeerSettings(
                source_types=len(self.trainer.task.source_dictionary),
                target_types=len(self.trainer.task.target_dictionary),
                tied_embeddings=model.share_all_embeddings,
                tied_softmax=model.share_all_embeddings or model.share_decoder_input_output_embed,
                label_smoothing=config.criterion.label_smoothing,
                learning_rate=config.optimization.lr[0],
                warmup_updates=config.lr_scheduler.warmup_updates,
                adam_betas=list(map(float, str(config.optimizer.adam_betas).strip("()").split(","))),
                weight_decay=config.optimizer.weight_decay,
                fp16=fp16,
                **{name: getattr(model, name) for name in MODEL_SETTINGS},
            )
        )
