"""The corpus as files, written whole or not at all.

train/valid/test.de, .en    one sentence a line, tokens separated by one space
train/valid/test.docs       one document a line: its number of sentences
test.de-en.align            one sentence a line: pairs `i-j`, German index - English index, from 0
test.contrast.jsonl         one pronoun a line, see `contrast`
corpus.json                 seed, sizes and the grammar's version
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from relumt.atomic_output import atomic_folder
from relumt.errors import UserError
from relumt.synth.documents import Document, documents
from relumt.synth.morphology import GENDERS

# Raise it with every change that alters what a seed gives.
GRAMMAR_VERSION = 1

SPLITS = ("train", "valid", "test")


def split_documents(seed: int, split: str, count: int) -> Iterator[Document]:
    """The documents of a split; they do not depend on the other splits, nor the first ones on `count`."""
    return documents(Random(f"relumt synth {GRAMMAR_VERSION} {seed} {split}"), count)


def contrast(number: int, document: Document) -> Iterator[dict[str, object]]:
    """The pronouns of the `number`-th document of a split as contrastive examples.

    `document` and `sentence` count from 0, the sentence within its document; `source` is English, `target`
    the German sentence, `wrong` the same with the pronoun of each other gender.
    """
    for index, (sentence, gender) in enumerate(zip(document.sentences, document.genders, strict=True)):
        if sentence.pronoun is not None:
            yield {
                "document": number,
                "sentence": index,
                "source": " ".join(sentence.english),
                "target": " ".join(sentence.german),
                "wrong": [" ".join(sentence.in_gender(other).german) for other in GENDERS if other != gender],
            }


def write_corpus(out: Path, seed: int, counts: dict[str, int]) -> dict[str, int]:
    """Write a corpus of `counts[split]` documents a split into the new folder `out`.

    Returns the number of sentence pairs a split; raises UserError when `out` is in use or cannot be written.
    """
    try:
        _refuse_folder_in_use(out)
        with atomic_folder(out) as stage:
            return _write_all(stage.result, seed, counts)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; give an --out that can be written") from error


def _write_all(folder: Path, seed: int, counts: dict[str, int]) -> dict[str, int]:
    """Write all files into `folder`; return the number of sentence pairs a split."""
    sentences = {}
    for split in SPLITS:
        sentences[split] = _write_split(folder, split, split_documents(seed, split, counts[split]))
    _write_annotations(folder, split_documents(seed, "test", counts["test"]))
    summary = {"grammar": GRAMMAR_VERSION, "seed": seed, "documents": counts, "sentences": sentences}
    (folder / "corpus.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return sentences


def _write_split(folder: Path, split: str, split_documents: Iterable[Document]) -> int:
    """Write both sides and the document boundaries; return the number of sentence pairs."""
    total = 0
    with (
        _opened(folder / f"{split}.de") as german,
        _opened(folder / f"{split}.en") as english,
        _opened(folder / f"{split}.docs") as boundaries,
    ):
        for document in split_documents:
            german.writelines(" ".join(sentence.german) + "\n" for sentence in document.sentences)
            english.writelines(" ".join(sentence.english) + "\n" for sentence in document.sentences)
            boundaries.write(f"{len(document.sentences)}\n")
            total += len(document.sentences)
    return total


def _write_annotations(folder: Path, test_documents: Iterable[Document]) -> None:
    """Write the gold alignments and the contrastive pronouns of the test set."""
    with _opened(folder / "test.de-en.align") as alignments, _opened(folder / "test.contrast.jsonl") as contrasts:
        for number, document in enumerate(test_documents):
            for sentence in document.sentences:
                alignments.write(" ".join(f"{german}-{english}" for german, english in sentence.alignment) + "\n")
            for example in contrast(number, document):
                contrasts.write(json.dumps(example, ensure_ascii=False) + "\n")


def _opened(path: Path):
    return path.open("w", encoding="utf-8", newline="\n")


def _refuse_folder_in_use(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder; remove it or give another --out")
