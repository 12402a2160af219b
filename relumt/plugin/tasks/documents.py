"""fairseq's translation task with documents of up to L tokens, assembled from a sentence-level data-bin."""

import json
import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths
from torch import Tensor
from torch.utils.data import Dataset

from relumt.corpora.document_lengths import read_document_lengths
from relumt.errors import UserError
from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts
from relumt.plugin.tasks.document_chunks import detach_separators, remove_separators
from relumt.plugin.training_device import check_training_device

MAX_LEN_A = 2
"""--max-len-a for documents, as in configs/datasets; fairseq's default would cut them off at 200 tokens."""

logger = logging.getLogger(__name__)


def concatenate(sentences: Sequence[Tensor], separator: Tensor) -> Tensor:
    """Return sentences as one chunk with one end-of-sentence symbol; `separator` has length 1, or 0 for none."""
    tokens = [part for sentence in sentences[:-1] for part in (sentence[:-1], separator)]
    return torch.cat([*tokens, sentences[-1]])


class ConcatenatedSentences(Dataset):
    """Concatenates the sentences of each chunk into a 1-D tensor of token indices with one end of sentence.

    Args:
        sentences: fairseq's dataset of one side, whose items end in the end-of-sentence token.
        sizes: number of tokens of each sentence.
        starts: index of the first sentence of each chunk.
        separator: index of the token between two sentences, [1], or [0] without one.
    """

    def __init__(self, sentences: Dataset, sizes: np.ndarray, starts: np.ndarray, separator: Tensor) -> None:
        self.sentences = sentences
        self.bounds = np.append(starts, len(sizes))
        self.sizes = chunk_sizes(starts, sizes, bool(len(separator)))
        self.separator = separator

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Tensor:
        numbers = range(self.bounds[index], self.bounds[index + 1])
        return concatenate([self.sentences[number] for number in numbers], self.separator)


class SeparatorRemover:
    """Removes separators, which would count as matching words, before the detokenizer of --eval-bleu-detok."""

    def __init__(self, tokenizer: Any, separator: str) -> None:
        self.tokenizer = tokenizer
        self.separator = separator

    def decode(self, line: str) -> str:
        """Return a line without separators, detokenized."""
        line = remove_separators(detach_separators(line, self.separator), self.separator)
        return str(self.tokenizer.decode(line)) if self.tokenizer else line


@dataclass
class DocumentsConfig(TranslationConfig):
    """Flags --document-length and --document-separator."""

    document_length: int = field(
        default=0,
        metadata={"help": "concatenate the sentences of a document up to this many tokens per side; 0: do not"},
    )
    document_separator: str = field(
        default="",
        metadata={"help": "word of both dictionaries to insert between the sentences of a chunk; empty: none"},
    )


@register_task("translation_documents", dataclass=DocumentsConfig)
class DocumentsTask(TranslationTask):
    """Translation of sentences or, with --document-length, of chunks of documents ([RF] Appendix B)."""

    cfg: DocumentsConfig
    tokenizer: Any

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split, in chunks if --document-length is set; raise UserError if that is impossible."""
        super().load_dataset(split, epoch, combine, **kwargs)
        if self.cfg.document_length:
            shards = split_paths(self.cfg.data)
            shard = shards[(epoch - 1) % len(shards)] if split == self.cfg.train_subset else shards[0]
            self.datasets[split] = self.split_into_chunks(self.datasets[split], Path(shard) / f"{split}.docs")

    def split_into_chunks(self, sentences: LanguagePairDataset, documents_path: Path) -> LanguagePairDataset:
        """Return a dataset of chunks of `sentences`.

        Raises:
            UserError: there is no target side, or no matching file of document lengths.
        """
        if sentences.tgt is None:
            raise UserError(
                f"{documents_path.with_suffix('')}: has no target side, which is needed to limit the length of chunks; "
                "add one to the data-bin, or drop --document-length"
            )
        if not documents_path.is_file():
            raise UserError(
                f"{documents_path}: no such file, so document boundaries are unknown; prepare the data-bin from a text "
                "P with P.docs beside it, or drop --document-length"
            )
        documents = read_document_lengths(documents_path, len(sentences))
        limit, separators = self.cfg.document_length, bool(self.cfg.document_separator)
        starts = chunk_starts(documents, sentences.src_sizes, sentences.tgt_sizes, limit, separators)
        source, target = (
            ConcatenatedSentences(side, sizes, starts, self.separator(dictionary))
            for side, sizes, dictionary in (
                (sentences.src, sentences.src_sizes, self.src_dict),
                (sentences.tgt, sentences.tgt_sizes, self.tgt_dict),
            )
        )
        logger.info(f"{documents_path}: {len(documents)} documents, {len(starts)} chunks of at most {limit} tokens")
        if too_long := int((np.maximum(sentences.src_sizes, sentences.tgt_sizes) > limit).sum()):
            logger.warning(
                f"{documents_path}: {too_long} sentences are longer than {limit} tokens; each is a chunk of its own"
            )
        return LanguagePairDataset(
            source,
            source.sizes,
            self.src_dict,
            target,
            target.sizes,
            self.tgt_dict,
            left_pad_source=sentences.left_pad_source,
            left_pad_target=sentences.left_pad_target,
            num_buckets=self.cfg.num_batch_buckets,
            shuffle=sentences.shuffle,
            pad_to_multiple=self.cfg.required_seq_len_multiple,
        )

    def separator(self, dictionary: Dictionary) -> Tensor:
        """Return the index of --document-separator, [1], or [0] without one; raises UserError if it is not a word."""
        separator = self.cfg.document_separator
        if not separator:
            return torch.empty(0, dtype=torch.long)
        if separator not in dictionary or dictionary.index(separator) < dictionary.nspecial:
            raise UserError(
                f"--document-separator {separator!r} is not a word of the dictionary; choose one, or add it with "
                "relumt prepare --document-separator"
            )
        return torch.tensor([dictionary.index(separator)])

    def get_batch_iterator(self, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """Return fairseq's iterator over batches.

        Batches of documents may have any size: fairseq would trim them to multiples of 8 and drop the rest.
        """
        if self.cfg.document_length:
            kwargs["required_batch_size_multiple"] = 1
        return super().get_batch_iterator(*args, **kwargs)

    def build_model(self, cfg: Namespace, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model; raise UserError if flags of documents or of the device are invalid."""
        if not from_checkpoint:  # a model that was trained on a GPU may translate on a CPU
            check_training_device(cfg)
        length = self.cfg.document_length
        if self.cfg.document_separator and not length:
            raise UserError("--document-separator has no effect without --document-length; add that or drop the flag")
        num_positions = min(self.cfg.max_source_positions, self.cfg.max_target_positions)
        if length > num_positions:
            raise UserError(
                f"--document-length {length} exceeds the model's {num_positions} positions; "
                f"add --max-source-positions {length} --max-target-positions {length}"
            )
        if length:
            search_args = {"max_len_a": MAX_LEN_A, "max_len_b": 200} | json.loads(self.cfg.eval_bleu_args or "{}")
            self.cfg.eval_bleu_args = json.dumps(search_args)
        model = super().build_model(cfg, from_checkpoint)
        if self.cfg.eval_bleu and self.cfg.document_separator:
            self.tokenizer = SeparatorRemover(self.tokenizer, self.cfg.document_separator)
        return model
