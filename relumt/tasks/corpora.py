"""The papers' corpora as tasks: their languages. Beam search is in each dataset's generate.args."""

from dataclasses import dataclass, field

from fairseq.tasks import register_task

from relumt.tasks.documents import DocumentsConfig, DocumentsTask


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
class Iwslt14Task(DocumentsTask):
    """IWSLT14, German to English unless said otherwise."""


@dataclass
class Wmt14Config(FromEnglishConfig):
    """English to German; fairseq wants a class of its own for each task."""


@register_task("translation_wmt14", dataclass=Wmt14Config)
class Wmt14Task(DocumentsTask):
    """WMT14, English to German unless said otherwise."""


@dataclass
class Europarl7Config(FromEnglishConfig):
    """English to German, in documents."""


@register_task("translation_europarl7", dataclass=Europarl7Config)
class Europarl7Task(DocumentsTask):
    """Europarl7, English to German unless said otherwise; documents with --document-length."""
