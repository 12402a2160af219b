"""fairseq's translation task with documents of up to L tokens, made on the fly of a sentence-level data-bin."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from fairseq.data import LanguagePairDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths

from relumt.data.chunks import chunk_starts, count_too_long
from relumt.data.concatenated_sentences import ConcatenatedSentences
from relumt.data.document_lengths import read_document_lengths
from relumt.errors import UserError, exit_on_user_error
from relumt.tasks.validation import BleuValidation

logger = logging.getLogger(__name__)


@dataclass
class DocumentsConfig(TranslationConfig):
    """Flags --document-length, --document-separator."""

    document_length: int = field(
        default=0,
        metadata={"help": "put a document's sentences together, up to this many tokens of either side; 0: do not"},
    )
    document_separator: str = field(
        default="", metadata={"help": "word of the dictionaries to stand between the sentences of a chunk; empty: none"}
    )


@register_task("translation_documents", dataclass=DocumentsConfig)
class DocumentsTask(BleuValidation, TranslationTask):
    """Translation of sentences or, with --document-length, of chunks of documents ([RF] Appendix B)."""

    cfg: DocumentsConfig
    skips_invalid = False

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs) -> None:
        """Load a split, as chunks where they are asked for.

        A missing sidecar, or one that does not add up, ends in one line and exit status 2.
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        if self.cfg.document_length:
            shards = split_paths(self.cfg.data)
            shard = shards[(epoch - 1) % len(shards)] if split == self.cfg.train_subset else shards[0]
            with exit_on_user_error():
                self.datasets[split] = self.in_chunks(self.datasets[split], Path(shard) / f"{split}.docs")

    def in_chunks(self, sentences: LanguagePairDataset, sidecar: Path) -> LanguagePairDataset:
        """The dataset of chunks of `sentences`; raises UserError without a target side, or a sidecar that fits."""
        if sentences.tgt is None:
            raise UserError(
                f"{sidecar.with_suffix('')}: has no target side, by which chunks are cut too; add one to the data-bin, "
                "or leave out --document-length"
            )
        if not sidecar.is_file():
            raise UserError(
                f"{sidecar}: no such file, so nothing tells where documents end; make the data-bin from a text P with "
                "P.docs beside it, or leave out --document-length"
            )
        documents = read_document_lengths(sidecar, len(sentences))
        limit, separators = self.cfg.document_length, bool(self.cfg.document_separator)
        starts = chunk_starts(documents, sentences.src_sizes, sentences.tgt_sizes, limit, separators)
        source = ConcatenatedSentences(
            sentences.src, sentences.src_sizes, starts, self.src_dict.eos(), self.separator(self.src_dict)
        )
        target = ConcatenatedSentences(
            sentences.tgt, sentences.tgt_sizes, starts, self.tgt_dict.eos(), self.separator(self.tgt_dict)
        )
        logger.info(f"{sidecar}: {len(documents)} documents, {len(starts)} chunks of at most {limit} tokens")
        if longer := count_too_long(sentences.src_sizes, sentences.tgt_sizes, limit):
            logger.warning(f"{sidecar}: {longer} sentences are longer than {limit} tokens; each is a chunk of its own")
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

    def beyond(self, chunks: LanguagePairDataset) -> np.ndarray:
        """Which chunks, [N] bool, are longer than the model's positions: sentences that are longer than the limit."""
        beyond = chunks.src_sizes > self.cfg.max_source_positions
        return beyond if chunks.tgt_sizes is None else beyond | (chunks.tgt_sizes > self.cfg.max_target_positions)

    def refuse_beyond(self, chunks: LanguagePairDataset, what: str) -> None:
        """Raise UserError where a chunk is longer than the model's positions: fairseq's own words fill a screen."""
        beyond = self.beyond(chunks)
        if beyond.any():
            targets = [] if chunks.tgt_sizes is None else ["--max-target-positions", str(chunks.tgt_sizes.max())]
            flags = " ".join(["--max-source-positions", str(chunks.src_sizes.max()), *targets])
            raise UserError(
                f"{what}: {beyond.sum()} sentences are longer than the model's positions; train with {flags}, or leave "
                "them out with --skip-invalid-size-inputs-valid-test"
            )

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Before an epoch of training: what would stop the validation after it ends in one line and exit status 2."""
        super().begin_epoch(epoch, model)
        if self.cfg.document_length and not self.skips_invalid:
            with exit_on_user_error():
                for split, chunks in self.datasets.items():
                    if split != self.cfg.train_subset:
                        self.refuse_beyond(chunks, split)

    def separator(self, dictionary) -> int | None:
        """Index of the separator, None without one; raises UserError if it is no word of the dictionary."""
        word = self.cfg.document_separator
        if not word:
            return None
        if word not in dictionary or dictionary.index(word) < dictionary.nspecial:
            raise UserError(f"--document-separator {word!r} is no word of the dictionary; add it, or name another")
        return dictionary.index(word)

    def get_batch_iterator(
        self, dataset: LanguagePairDataset, max_tokens: int | None = None, *args, **kwargs
    ) -> EpochBatchIterator:
        """fairseq's batches, but that none of a few documents is dropped for not being a multiple of 8.

        A chunk that is larger than a batch, or than the model's positions and not to be left out, ends in one line and
        exit status 2.
        """
        if self.cfg.document_length:
            kwargs["required_batch_size_multiple"] = 1
            with exit_on_user_error():
                if not kwargs.get("ignore_invalid_inputs"):
                    self.refuse_beyond(dataset, self.cfg.data)
                self.check_fits(dataset, max_tokens)
        return super().get_batch_iterator(dataset, max_tokens, *args, **kwargs)

    def check_fits(self, chunks: LanguagePairDataset, max_tokens: int | None) -> None:
        """Raise UserError where a chunk within the model's positions is larger than a batch may be."""
        sides = [sizes[~self.beyond(chunks)] for sizes in (chunks.src_sizes, chunks.tgt_sizes) if sizes is not None]
        longest = max(sizes.max(initial=0) for sizes in sides)
        if max_tokens and longest > max_tokens:
            raise UserError(
                f"a chunk of {longest} tokens does not fit a batch of {max_tokens}; give --max-tokens (in validation "
                f"--max-tokens-valid, where that is given) {longest} or more"
            )

    def build_model(self, cfg, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model; flags that cannot be end in one line and exit status 2."""
        with exit_on_user_error():
            self.check_flags()
            if self.cfg.document_length:
                # fairseq's own limit, 200 tokens, would cut documents; this is that of configs/datasets.
                of_search = {"max_len_a": 2, "max_len_b": 200} | self.search_in_validation()
                self.cfg.eval_bleu_args = json.dumps(of_search)
        self.skips_invalid = getattr(cfg, "skip_invalid_size_inputs_valid_test", False)
        return super().build_model(cfg, from_checkpoint)

    def search_in_validation(self) -> dict[str, object]:
        """What --eval-bleu-args says; raises UserError where it is no JSON object."""
        given = self.cfg.eval_bleu_args or "{}"
        try:
            of_search = json.loads(given)
        except ValueError:
            of_search = None
        if not isinstance(of_search, dict):
            raise UserError(f"--eval-bleu-args {given} is no JSON object; write it as '{{\"beam\": 4}}'")
        return of_search

    def check_flags(self) -> None:
        """Raise UserError for flags of documents that cannot be, or would do nothing."""
        allowed = min(self.cfg.max_source_positions, self.cfg.max_target_positions)
        length = self.cfg.document_length
        if length < 0:
            raise UserError(f"--document-length must be positive, or 0 for sentences, not {length}")
        if self.cfg.document_separator and not length:
            raise UserError("--document-separator does nothing without --document-length; add that or leave it out")
        if length > allowed:
            raise UserError(
                f"--document-length {length} is beyond the model's {allowed} positions; "
                f"add --max-source-positions {length} --max-target-positions {length}"
            )
