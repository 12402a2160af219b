"""IMDB reviews (Maas et al. 2011), from the unpacked archive or from two files `label<TAB>id<TAB>rating<TAB>text`."""

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import torch

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.one_layer.examples import Examples, Splits, split_off_validation
from relumt.one_layer.models import PADDING
from relumt.one_layer.settings import TaskSettings

WORD = re.compile(r"[a-z0-9']+")
LINE_BREAK = "<br />"
UNKNOWN = 1
NUM_RESERVED = 2
PARTS = ("train", "test")
LABELS = {"neg": 0, "pos": 1}

ADVICE = (
    "unpack aclImdb_v1.tar.gz (docs/results/inhibitor_table1.md says where it is) and pass its folder aclImdb as --imdb"
)

Review = tuple[str, int]
"""Text and label."""


def load(settings: TaskSettings, folder: Path) -> Splits:
    """Read the reviews as word indices [N, length] and labels [N]; the vocabulary is that of the training examples.

    Raises:
        UserError: reviews are missing or damaged.
    """
    require_data(folder)
    (train, train_digest), (test, test_digest) = (read_part(folder, part) for part in PARTS)
    numbers = Examples(torch.arange(len(train)), torch.tensor([label for _, label in train]))
    kept, valid = split_off_validation(numbers, settings.num_train, settings.num_valid or 0)
    vocabulary = build_vocabulary((train[i][0] for i in kept.inputs.tolist()), settings.max_symbols)
    encoded = {
        "train": encode([train[i] for i in kept.inputs.tolist()], vocabulary, settings.length),
        "valid": encode([train[i] for i in valid.inputs.tolist()], vocabulary, settings.length),
        "test": encode(test, vocabulary, settings.length),
    }
    digests = {"train": train_digest, "test": test_digest}
    return Splits(**encoded, num_symbols=NUM_RESERVED + len(vocabulary), data=digests)


def require_data(folder: Path) -> None:
    """Raise UserError unless each part is there, as a file or as folders."""
    for part in PARTS:
        if not ((folder / f"{part}.tsv.gz").is_file() or all((folder / part / label).is_dir() for label in LABELS)):
            raise UserError(f"{folder}: expected {part}/pos and {part}/neg, or {part}.tsv.gz, found neither; {ADVICE}")


def read_part(folder: Path, part: str) -> tuple[list[Review], str]:
    """Return the reviews of a part and a checksum.

    Raises:
        UserError: the file is damaged, or there are no reviews.
    """
    table = folder / f"{part}.tsv.gz"
    reviews, digest = (read_table(table), file_sha256(table)) if table.is_file() else read_folders(folder / part)
    if {label for _, label in reviews} != set(LABELS.values()):
        raise UserError(f"{folder}: {part} lacks positive or negative reviews; {ADVICE}")
    return reviews, digest


def read_table(path: Path) -> list[Review]:
    """Read a gzipped table; raise UserError if it is damaged."""
    try:
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a complete gzip file of UTF-8 text ({error}); {ADVICE}") from None
    reviews = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):  # reviews may have other line breaks
        label, *others = line.split("\t", 3)
        if label not in ("0", "1") or len(others) != 3:
            raise UserError(f"{path}: line {number} is not label<TAB>id<TAB>rating<TAB>text, label 0 or 1; {ADVICE}")
        reviews.append((others[2], int(label)))
    return reviews


def read_folders(folder: Path) -> tuple[list[Review], str]:
    """Read the text files of a part of the archive, in the order of their names, and their checksum."""
    reviews, digest = [], sha256()
    for name, label in LABELS.items():
        for path in sorted((folder / name).glob("*.txt")):
            content = path.read_bytes()
            digest.update(content + b"\0")
            reviews.append((content.decode("utf-8", errors="replace"), label))
    return reviews, digest.hexdigest()


def extract_words(text: str) -> list[str]:
    """Return the lower-case words of a review, without punctuation."""
    return WORD.findall(text.replace(LINE_BREAK, " ").lower())


def build_vocabulary(texts: Iterable[str], max_symbols: int) -> dict[str, int]:
    """Return the index of each of the most frequent words; 0 and 1 are reserved."""
    counts = Counter(word for text in texts for word in extract_words(text))
    return {word: i for i, (word, _) in enumerate(counts.most_common(max_symbols - NUM_RESERVED), NUM_RESERVED)}


def encode(reviews: Iterable[Review], vocabulary: dict[str, int], length: int) -> Examples:
    """Return the last `length` words of each review as indices, padded at the end, and the labels."""
    rows, labels = [], []
    for text, label in reviews:
        indices = [vocabulary.get(word, UNKNOWN) for word in extract_words(text)[-length:]] or [UNKNOWN]
        rows.append(indices + [PADDING] * (length - len(indices)))
        labels.append(label)
    return Examples(torch.tensor(rows, dtype=torch.int32), torch.tensor(labels))
