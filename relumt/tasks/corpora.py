"""The papers' corpora as tasks: their languages, and BLEU in validation both ways. Beam search is in generate.args."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.tasks import FairseqTask, register_task
from fairseq.utils import strip_pad
from sacremoses import MosesDetokenizer

from relumt.tasks.documents import DocumentsConfig, DocumentsTask
from relumt.tasks.validation import TOKENIZERS, log_bleu, sums

UNKNOWN = "UNKNOWNTOKENINREF"
"""In references, so that an unknown word in a translation matches nothing."""


class CorpusTask(DocumentsTask):
    """Translation that, with --eval-bleu, validates by "bleu" (on tokens) and "bleu_detokenised".

    fairseq's --eval-bleu-args and --eval-bleu-remove-bpe count; --eval-bleu-detok and --eval-tokenized-bleu do not,
    since both are given.
    """

    def valid_step(self, sample: Mapping[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """fairseq's, and what the batch adds to the two scores."""
        # Past TranslationTask's, which would translate the batch once more, for a score of its own.
        loss, sample_size, log = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self.translate(sample, model)
            log |= sums("bleu", hypotheses, references)
            detokenizer = MosesDetokenizer(lang=self.cfg.target_lang)
            plain = ([detokenizer.detokenize(line.split()) for line in lines] for lines in (hypotheses, references))
            log |= sums("bleu_detokenised", *plain)
        return loss, sample_size, log

    def translate(self, sample: Mapping[str, Any], model: Any) -> tuple[list[str], list[str]]:
        """The batch's translations and references, without subwords."""
        generated = self.inference_step(self.sequence_generator, [model], sample)
        bpe, dictionary = self.cfg.eval_bleu_remove_bpe, self.tgt_dict
        hypotheses = [dictionary.string(best["tokens"].int().cpu(), bpe) for best, *_ in generated]
        references = [
            dictionary.string(strip_pad(target, dictionary.pad()).int().cpu(), bpe, unk_string=UNKNOWN)
            for target in sample["target"]
        ]
        return hypotheses, references

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """fairseq's, and the two scores."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        for name in TOKENIZERS:
            log_bleu(name, logging_outputs)


@dataclass
class Iwslt14Config(DocumentsConfig):
    """German to English."""

    source_lang: str = field(default="de", metadata={"help": "source language", "argparse_alias": "-s"})
    target_lang: str = field(default="en", metadata={"help": "target language", "argparse_alias": "-t"})


@dataclass
class FromEnglishConfig(DocumentsConfig):
    """English to German."""

    source_lang: str = field(default="en", metadata={"help": "source language", "argparse_alias": "-s"})
    target_lang: str = field(default="de", metadata={"help": "target language", "argparse_alias": "-t"})


@register_task("translation_iwslt14", dataclass=Iwslt14Config)
class Iwslt14Task(CorpusTask):
    """IWSLT14, German to English unless said otherwise."""


@dataclass
class Wmt14Config(FromEnglishConfig):
    """English to German; fairseq wants a class of its own for each task."""


@register_task("translation_wmt14", dataclass=Wmt14Config)
class Wmt14Task(CorpusTask):
    """WMT14, English to German unless said otherwise."""


@dataclass
class Europarl7Config(FromEnglishConfig):
    """English to German, in documents."""


@register_task("translation_europarl7", dataclass=Europarl7Config)
class Europarl7Task(CorpusTask):
    """Europarl7, English to German unless said otherwise; documents with --document-length."""
