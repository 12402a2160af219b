"""fairseq's translation task with documents of up to L tokens, assembled from a sentence-level data-bin.

In validation, BLEU is computed on tokenized and detokenized text, from statistics that are summed over batches and
workers.
"""

import json
import logging
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths, strip_pad
from sacrebleu.metrics import BLEU
from torch import Tensor
from torch.utils.data import Dataset

from relumt.corpora.document_lengths import read_document_lengths
from relumt.corpora.tokenization import bleu_tokenizer, detokenize
from relumt.errors import UserError
from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts
from relumt.plugin.tasks.document_chunks import detach_separators, remove_separators
from relumt.plugin.training_device import check_training_device

UNKNOWN = "UNKNOWNTOKENINREF"
"""Stands for unknown words in references, so that unknown words in translations match nothing."""

MAX_LEN_A = 2
"""--max-len-a for documents, as in configs/datasets; fairseq's default would cut them off at 200 tokens."""

logger = logging.getLogger(__name__)

NUM_STATISTICS = 10
"""BLEU is computed from the matching n-grams and all n-grams for n = 1, …, 4, and the lengths of both sides."""


def bleu_statistics(name: str, tokenizer: str, hypotheses: list[str], references: list[str]) -> dict[str, float]:
    """Return the statistics of a batch for the score that the log calls `name`, by their names in the log."""
    score = BLEU(tokenize=tokenizer, force=True).corpus_score(hypotheses, [references])
    statistics = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return {f"_{name}_{i}": value for i, value in enumerate(statistics)}


def log_bleu(name: str, logging_outputs: list[dict[str, Any]]) -> None:
    """Log the BLEU of all batches of all workers; log nothing without validation batches."""
    keys = [f"_{name}_{i}" for i in range(NUM_STATISTICS)]
    sums = {key: sum(float(log.get(key, 0)) for log in logging_outputs) for key in keys}
    if not any(sums.values()):
        return
    # Not arrays, as in fairseq's translation task: checkpoints store the meters and are loaded with weights_only.
    for key, value in sums.items():
        metrics.log_scalar(key, value)

    def bleu(meters: Mapping[str, Any]) -> float:
        *counts, sys_len, ref_len = (int(meters[key].sum) for key in keys)
        return round(BLEU.compute_bleu(counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp").score, 2)

    metrics.log_derived(name, bleu)


class BleuValidation(FairseqTask):
    """A mixin for translation tasks that, with --eval-bleu, validates with "bleu" and "bleu_detokenized".

    fairseq's --eval-bleu-args, --eval-bleu-remove-bpe and --eval-bleu-print-samples apply. --eval-bleu-detok and
    --eval-tokenized-bleu do not, because both scores are logged.
    """

    def valid_step(self, sample: Mapping[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return loss, sample size and log of a batch; the log includes the statistics of both BLEU scores."""
        # Bypasses TranslationTask's method, which would translate the batch a second time for its own score.
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self.translate(sample, model)
            if self.cfg.eval_bleu_print_samples:
                logger.info("example hypothesis: %s", hypotheses[0])
                logger.info("example reference: %s", references[0])
            language = self.cfg.target_lang
            log |= bleu_statistics("bleu", "none", hypotheses, references)
            detokenized = (detokenize(lines, language) for lines in (hypotheses, references))
            log |= bleu_statistics("bleu_detokenized", bleu_tokenizer(language), *detokenized)
        return loss, sample_size, log

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """Return the translations and the references of a batch, with subwords joined."""
        generated = self.inference_step(self.sequence_generator, [model], sample)
        bpe, dictionary = self.cfg.eval_bleu_remove_bpe, self.tgt_dict
        hypotheses = [dictionary.string(best["tokens"].int().cpu(), bpe) for best, *_ in generated]
        references = [
            dictionary.string(strip_pad(target, dictionary.pad()).int().cpu(), bpe, unk_string=UNKNOWN)
            for target in sample["target"]
        ]
        return hypotheses, references

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Log fairseq's metrics and both BLEU scores."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        for name in ("bleu", "bleu_detokenized"):  # the first on tokenized text, as in the papers
            log_bleu(name, logging_outputs)


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
class DocumentsTask(BleuValidation, TranslationTask):
    """Translation of sentences or, with --document-length, of chunks of documents ([RF] Appendix B)."""

    cfg: DocumentsConfig

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

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """Return the translations and the references of a batch, with subwords joined and without separators."""
        separator = self.cfg.document_separator

        def without_separators(lines: list[str]) -> list[str]:
            return [remove_separators(detach_separators(line, separator), separator) for line in lines]

        hypotheses, references = super().translate(sample, model)
        return without_separators(hypotheses), without_separators(references)

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
        return super().build_model(cfg, from_checkpoint)
