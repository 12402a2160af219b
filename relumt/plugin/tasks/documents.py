"""fairseq's translation task with documents of up to L tokens, assembled from a sentence-level data-bin."""

import json
import logging
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths

from relumt.corpora.document_lengths import read_document_lengths
from relumt.errors import UserError, exit_on_user_error
from relumt.plugin.tasks.chunks import chunk_starts, count_too_long
from relumt.plugin.tasks.concatenated_sentences import ConcatenatedSentences
from relumt.plugin.tasks.document_chunks import detach_separators, remove_separators
from relumt.plugin.tasks.validation import BleuValidation
from relumt.plugin.training_device import check_training_device

logger = logging.getLogger(__name__)


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
    skips_invalid = False

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split, in chunks if --document-length is set; exit with a one-line message if that is impossible."""
        super().load_dataset(split, epoch, combine, **kwargs)
        if self.cfg.document_length:
            shards = split_paths(self.cfg.data)
            shard = shards[(epoch - 1) % len(shards)] if split == self.cfg.train_subset else shards[0]
            with exit_on_user_error():
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
            ConcatenatedSentences(side, sizes, starts, dictionary.eos(), self.separator_index(dictionary))
            for side, sizes, dictionary in (
                (sentences.src, sentences.src_sizes, self.src_dict),
                (sentences.tgt, sentences.tgt_sizes, self.tgt_dict),
            )
        )
        logger.info(f"{documents_path}: {len(documents)} documents, {len(starts)} chunks of at most {limit} tokens")
        if too_long := count_too_long(sentences.src_sizes, sentences.tgt_sizes, limit):
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

    def separator_index(self, dictionary: Dictionary) -> int | None:
        """Return the index of --document-separator, or None without one; raises UserError if it is not a word."""
        separator = self.cfg.document_separator
        if not separator:
            return None
        if separator not in dictionary or dictionary.index(separator) < dictionary.nspecial:
            raise UserError(
                f"--document-separator {separator!r} is not a word of the dictionary; choose one, or add it with "
                "relumt prepare --document-separator"
            )
        return dictionary.index(separator)

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Exit with a one-line message before training if the validation after the epoch would fail."""
        super().begin_epoch(epoch, model)
        if self.cfg.document_length and not self.skips_invalid:
            with exit_on_user_error():
                for split, chunks in self.datasets.items():
                    if split != self.cfg.train_subset:
                        self.check_positions(chunks, split)

    def get_batch_iterator(
        self, dataset: LanguagePairDataset, max_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> EpochBatchIterator:
        """Return fairseq's iterator over batches; exit with a one-line message if a chunk does not fit.

        Batches of documents may have any size: fairseq would trim them to multiples of 8 and drop the rest.
        """
        if self.cfg.document_length:
            kwargs["required_batch_size_multiple"] = 1
            with exit_on_user_error():
                if not kwargs.get("ignore_invalid_inputs"):
                    self.check_positions(dataset, self.cfg.data)
                self.check_batch_size(dataset, max_tokens)
        return super().get_batch_iterator(dataset, max_tokens, *args, **kwargs)

    def exceeds_positions(self, chunks: LanguagePairDataset) -> np.ndarray:
        """Return which chunks have more tokens than the model has positions, [number of chunks] bool.

        These are sentences that are longer than --document-length.
        """
        source_exceeds = chunks.src_sizes > self.cfg.max_source_positions
        if chunks.tgt_sizes is None:
            return source_exceeds
        return source_exceeds | (chunks.tgt_sizes > self.cfg.max_target_positions)

    def check_positions(self, chunks: LanguagePairDataset, name: str) -> None:
        """Raise UserError if a chunk has more tokens than the model has positions; fairseq's message fills a screen."""
        num_exceeding = self.exceeds_positions(chunks).sum()
        if num_exceeding:
            flags = f"--max-source-positions {chunks.src_sizes.max()}"
            if chunks.tgt_sizes is not None:
                flags += f" --max-target-positions {chunks.tgt_sizes.max()}"
            raise UserError(
                f"{name}: {num_exceeding} sentences have more tokens than the model has positions; train with {flags}, "
                "or skip them with --skip-invalid-size-inputs-valid-test"
            )

    def check_batch_size(self, chunks: LanguagePairDataset, max_tokens: int | None) -> None:
        """Raise UserError if a chunk that the model has enough positions for is larger than a batch may be."""
        fits_positions = ~self.exceeds_positions(chunks)
        sides = [sizes[fits_positions] for sizes in (chunks.src_sizes, chunks.tgt_sizes) if sizes is not None]
        longest = max(sizes.max(initial=0) for sizes in sides)
        if max_tokens and longest > max_tokens:
            raise UserError(
                f"a chunk of {longest} tokens does not fit into a batch of {max_tokens}; set --max-tokens (and "
                f"--max-tokens-valid, if given) to at least {longest}"
            )

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """Return the translations and the references of a batch, with subwords joined and without separators."""
        separator = self.cfg.document_separator

        def without_separators(lines: list[str]) -> list[str]:
            return [remove_separators(detach_separators(line, separator), separator) for line in lines]

        hypotheses, references = super().translate(sample, model)
        return without_separators(hypotheses), without_separators(references)

    def build_model(self, cfg: Namespace, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model; exit with a one-line message if flags of documents or of the device are invalid."""
        with exit_on_user_error():
            if not from_checkpoint:  # a model that was trained on a GPU may translate on a CPU
                check_training_device(cfg)
            self.check_flags()
            if self.cfg.document_length:
                # fairseq's default of 200 tokens would truncate documents; these are the limits of configs/datasets.
                search_args = {"max_len_a": 2, "max_len_b": 200} | self.parse_eval_bleu_args()
                self.cfg.eval_bleu_args = json.dumps(search_args)
        self.skips_invalid = getattr(cfg, "skip_invalid_size_inputs_valid_test", False)
        return super().build_model(cfg, from_checkpoint)

    def parse_eval_bleu_args(self) -> dict[str, object]:
        """Return --eval-bleu-args; raises UserError if it is not a JSON object."""
        text = self.cfg.eval_bleu_args or "{}"
        try:
            search_args = json.loads(text)
        except ValueError:
            search_args = None
        if not isinstance(search_args, dict):
            raise UserError(f"--eval-bleu-args {text} is not a JSON object; write, for example, '{{\"beam\": 4}}'")
        return search_args

    def check_flags(self) -> None:
        """Raise UserError for flags of documents that are invalid or have no effect."""
        num_positions = min(self.cfg.max_source_positions, self.cfg.max_target_positions)
        length = self.cfg.document_length
        if length < 0:
            raise UserError(f"--document-length must be positive, or 0 for sentences, not {length}")
        if self.cfg.document_separator and not length:
            raise UserError("--document-separator has no effect without --document-length; add that or drop the flag")
        if self.cfg.load_alignments and length:
            raise UserError("--load-alignments has no effect with --document-length; drop one of them")
        if length > num_positions:
            raise UserError(
                f"--document-length {length} exceeds the model's {num_positions} positions; "
                f"add --max-source-positions {length} --max-target-positions {length}"
            )
