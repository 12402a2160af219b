"""One task per corpus of the papers; they differ in their default languages. Search flags are in configs/."""

from dataclasses import dataclass, field

from fairseq.tasks import register_task

from relumt.plugin.tasks.documents import DocumentsConfig, DocumentsTask


@dataclass
class Iwslt14Config(DocumentsConfig):
    """Flags of `translation_iwslt14`."""

    source_lang: str = field(default="de", metadata={"help": "source language", "argparse_alias": "-s"})
    target_lang: str = field(default="en", metadata={"help": "target language", "argparse_alias": "-t"})


@dataclass
class Wmt14Config(DocumentsConfig):
    """Flags of `translation_wmt14`."""

    source_lang: str = field(default="en", metadata={"help": "source language", "argparse_alias": "-s"})
    target_lang: str = field(default="de", metadata={"help": "target language", "argparse_alias": "-t"})


@dataclass
class Europarl7Config(Wmt14Config):
    """Flags of `translation_europarl7`; fairseq requires one class per task."""


@register_task("translation_iwslt14", dataclass=Iwslt14Config)
class Iwslt14Task(DocumentsTask):
    """IWSLT14, German to English by default."""


@register_task("translation_wmt14", dataclass=Wmt14Config)
class Wmt14Task(DocumentsTask):
    """WMT14, English to German by default."""


@register_task("translation_europarl7", dataclass=Europarl7Config)
class Europarl7Task(DocumentsTask):
    """Europarl7, English to German by default; documents with --document-length."""
