"""The corpus as files. The folder is written completely or not at all.

train/valid/test.de, .en    one sentence per line, tokens separated by one space
train/valid/test.docs       one document per line: its number of sentences
test.de-en.align            one sentence per line: pairs `i-j`, German index - English index, from 0
test.contrast.jsonl         one pronoun per line, see `contrastive_examples`
corpus.json                 seed, sizes and version of the grammar
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from relumt.atomic_output import atomic_folder
from relumt.errors import UserError
from relumt.synth.documents import Document, documents
from relumt.synth.morphology import GENDERS
from relumt.text_files import open_text

GRAMMAR_VERSION = 1
"""Increment it with every change that alters the corpus of a seed."""

SPLITS = ("train", "valid", "test")


def split_documents(seed: int, split: str, count: int) -> Iterator[Document]:
    """Generate the documents of a split, independently of other splits. A larger `count` only appends documents."""
    return documents(Random(f"relumt synth {GRAMMAR_VERSION} {seed} {split}"), count)


def contrastive_examples(document_number: int, document: Document) -> Iterator[dict[str, object]]:
    """Yield the pronouns of a document as contrastive examples.

    `document` and `sentence` count from 0, the sentence within its document. `source` is English, `target` is German,
    and `wrong` has the German sentence with the pronoun in each other gender.
    """
    for index, (sentence, gender) in enumerate(zip(document.sentences, document.genders, strict=True)):
        if sentence.pronoun is not None:
            yield {
                "document": document_number,
                "sentence": index,
                "source": " ".join(sentence.english),
                "target": " ".join(sentence.german),
                "wrong": [" ".join(sentence.in_gender(other).german) for other in GENDERS if other != gender],
            }


def write_corpus(out: Path, seed: int, counts: dict[str, int]) -> dict[str, int]:
    """Write a corpus of `counts[split]` documents per split to the new folder `out`.

    Returns:
        The number of sentence pairs per split.

    Raises:
        UserError: `out` is not empty, or is no folder.
        OSError: it cannot be written.
    """
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} exists and is not an empty folder; remove it or give another --out")
    with atomic_folder(out) as stage:
        sentences = {
            split: _write_split(stage.result, split, split_documents(seed, split, counts[split])) for split in SPLITS
        }
        _write_annotations(stage.result, split_documents(seed, "test", counts["test"]))
        summary = {"grammar": GRAMMAR_VERSION, "seed": seed, "documents": counts, "sentences": sentences}
        (stage.result / "corpus.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return sentences


def _write_split(folder: Path, split: str, split_documents: Iterable[Document]) -> int:
    """Write both sides and the lengths of the documents; return the number of sentence pairs."""
    total = 0
    with (
        open_text(folder / f"{split}.de", "w") as german,
        open_text(folder / f"{split}.en", "w") as english,
        open_text(folder / f"{split}.docs", "w") as lengths,
    ):
        for document in split_documents:
            german.writelines(" ".join(sentence.german) + "\n" for sentence in document.sentences)
            english.writelines(" ".join(sentence.english) + "\n" for sentence in document.sentences)
            lengths.write(f"{len(document.sentences)}\n")
            total += len(document.sentences)
    return total


def _write_annotations(folder: Path, test_documents: Iterable[Document]) -> None:
    """Write the gold alignments and the contrastive examples of the test set."""
    with (
        open_text(folder / "test.de-en.align", "w") as alignments,
        open_text(folder / "test.contrast.jsonl", "w") as examples,
    ):
        for number, document in enumerate(test_documents):
            for sentence in document.sentences:
                alignments.write(" ".join(f"{german}-{english}" for german, english in sentence.alignment) + "\n")
            for example in contrastive_examples(number, document):
                examples.write(json.dumps(example, ensure_ascii=False) + "\n")
