"""The data of [IN] Table 1: the adding problem, MNIST, IMDB and IAM words, as tensors in memory. Shapes: N examples.

    adding   sequences [N, T, 2] of numbers and markers     sums [N] of the two marked numbers
    mnist    images [N, 28, 28] of bytes                    labels [N]
    imdb     word indices [N, T]                            labels [N]
    iam      images [N, 32, 128] of bytes                   transcriptions [N, L], padded with 0

Each `load_*` takes the settings and the folder of the data. What cannot be read raises the error of the library, to
which `load` adds where the data comes from.
"""

import gzip
import random
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relumt.errors import UserError, describe_error
from relumt.files import file_sha256
from relumt.papers.inhibitor.table1_models import IMAGE_HEIGHT, IMAGE_WIDTH, PADDING
from relumt.papers.inhibitor.table1_settings import TaskSettings

SPLIT_SEED = 20231003
"""Draws which examples are kept and which of them are for validation: the same in every repetition."""

MNIST_PARTS = {"train": "train", "test": "t10k"}
MNIST_KINDS = {"images-idx3-ubyte": 3, "labels-idx1-ubyte": 1}
"""End of a file's name -> its number of dimensions."""
UNSIGNED_BYTES = 0x08
"""Third byte of an idx file: the type of its elements."""

WORD = re.compile(r"[a-z0-9']+")
UNKNOWN, NUM_RESERVED = 1, 2
LABELS = {"neg": 0, "pos": 1}

LISTS = ("words.txt", "ascii/words.txt")
OFFICIAL_SPLITS = {
    "trainset.txt": "train",
    "validationset1.txt": "valid",
    "validationset2.txt": "valid",
    "testset.txt": "test",
}
"""Lists of lines, such as a01-000u-00, of IAM's task "large writer independent text line recognition" -> split."""
FORM_SHARES = {"test": 5, "valid": 10, "train": 100}
"""Without the official lists: split -> upper end of its share of the forms, in percent."""
MAX_UNREADABLE = 0.001
"""Share of the images that may be missing or unreadable; archives are known to have a few empty ones."""


@dataclass(frozen=True)
class Examples:
    """Inputs and targets; the first dimension of both counts examples."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if not 0 < len(self.inputs) == len(self.targets):
            raise ValueError(f"found {len(self.inputs)} inputs and {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, size: int, generator: torch.Generator | None = None) -> "Iterator[Examples]":
        """Yield batches of at most `size` examples; in random order if there is a generator."""
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        for chosen in order.split(size):
            yield self[chosen]

    def __getitem__(self, chosen: Tensor) -> "Examples":
        return Examples(self.inputs[chosen], self.targets[chosen])


@dataclass(frozen=True)
class Splits:
    """The examples of a task.

    Attributes:
        train, valid, test: disjoint, except that IMDB repeats 123 training reviews in its test set.
        num_symbols: size of the vocabulary of inputs (IMDB) or of the alphabet of targets (IAM), with the reserved 0.
        data: name of each file that was read -> its SHA-256; empty for data drawn from a fixed seed.
    """

    train: Examples
    valid: Examples
    test: Examples
    num_symbols: int = 0
    data: dict[str, str] = field(default_factory=dict)


def load(task: str, settings: TaskSettings, folder: Path) -> Splits:
    """Read the data of a task.

    Raises:
        UserError: a file is missing or damaged, or Pillow is not installed.
    """
    try:
        return LOADERS[task](settings, folder)
    except (OSError, ImportError, EOFError, zlib.error, struct.error, ValueError, LookupError) as error:
        found = f"{folder}: cannot read the data of {task} ({describe_error(error)})"
        raise UserError(f"{found}; docs/results/inhibitor_table1.md says what --{task} contains") from error


def split_off_validation(count: int, num_train: int | None, num_valid: int | None) -> tuple[Tensor, Tensor]:
    """Draw the numbers of `num_train` training examples (None: all that remain) and of `num_valid` for validation."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
    first = num_valid or 0
    return order[first : None if num_train is None else first + num_train], order[:first]


def load_adding(settings: TaskSettings, _: Path) -> Splits:
    """Draw examples: the same in every repetition, so that repetitions differ by the training alone."""
    sizes = settings.num_train or 0, settings.num_valid or 0, settings.num_test
    train, valid, test = (draw_sequences(size, settings.length, seed) for seed, size in enumerate(sizes, 1))
    return Splits(train, valid, test)


def draw_sequences(num_examples: int, length: int, seed: int) -> Examples:
    """Draw sequences of a number in [0, 1) and a marker, and sums (Hochreiter and Schmidhuber 1997).

    One number of each half is marked. The sum has a variance of 1/6, the mean squared error of a constant answer.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(num_examples, length, generator=generator)
    half = length // 2
    markers = torch.zeros(num_examples, length)
    for start, end in ((0, half), (half, length)):
        markers.scatter_(1, torch.randint(start, end, (num_examples, 1), generator=generator), 1.0)
    return Examples(torch.stack([numbers, markers], dim=-1), (numbers * markers).sum(1))


def load_mnist(settings: TaskSettings, folder: Path) -> Splits:
    """Read the four idx files, gzipped or not; the training files are split at random."""
    names = [f"{part}-{kind}" for part in MNIST_PARTS.values() for kind in MNIST_KINDS]
    paths = [path if (path := folder / f"{name}.gz").is_file() else folder / name for name in names]
    arrays = [read_idx(path, dims) for path, dims in zip(paths, (*MNIST_KINDS.values(),) * 2, strict=True)]
    train, test = (Examples(images, labels.long()) for images, labels in (arrays[:2], arrays[2:]))
    kept, valid = split_off_validation(len(train), settings.num_train, settings.num_valid)
    return Splits(train[kept], train[valid], test, data={path.name: file_sha256(path) for path in paths})


def read_idx(path: Path, num_dims: int) -> Tensor:
    """Read an idx file of bytes: zeros, type and number of dimensions, then their sizes, then the elements."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    *magic, first = struct.unpack_from(">HBBI", content)
    shape = (first, *struct.unpack_from(f">{num_dims - 1}I", content, 8))
    if magic != [0, UNSIGNED_BYTES, num_dims]:
        raise ValueError(f"{path.name} is no idx file of bytes in {num_dims} dimensions")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * num_dims).reshape(shape).copy())


def load_imdb(settings: TaskSettings, folder: Path) -> Splits:
    """Read the reviews of Maas et al. 2011; the vocabulary is that of the training examples."""
    (train, train_digest), (test, test_digest) = (read_reviews(folder, part) for part in ("train", "test"))
    kept, valid = split_off_validation(len(train), settings.num_train, settings.num_valid)
    vocabulary = build_vocabulary((train[i][0] for i in kept.tolist()), settings.max_symbols)
    parts = [train[i] for i in kept.tolist()], [train[i] for i in valid.tolist()], test
    train_set, valid_set, test_set = (encode_reviews(reviews, vocabulary, settings.length) for reviews in parts)
    data = {"train": train_digest, "test": test_digest}
    return Splits(train_set, valid_set, test_set, NUM_RESERVED + len(vocabulary), data)


def read_reviews(folder: Path, part: str) -> tuple[list[tuple[str, int]], str]:
    """Return texts with their labels, and a checksum.

    They come from a table `label<TAB>id<TAB>rating<TAB>text` or from the archive, in the order of the files' names.
    """
    table = folder / f"{part}.tsv.gz"
    if table.is_file():
        text = gzip.decompress(table.read_bytes()).decode("utf-8").removesuffix("\n")
        rows = (line.split("\t", 3) for line in text.split("\n"))  # reviews may have other line breaks
        return [(review, int(label)) for label, _, _, review in rows], file_sha256(table)
    paths = [(path, y) for name, y in LABELS.items() for path in sorted((folder / part / name).iterdir())]
    contents = [(path.read_bytes(), y) for path, y in paths]
    digest = sha256(b"".join(content + b"\0" for content, _ in contents))
    return [(content.decode("utf-8", errors="replace"), y) for content, y in contents], digest.hexdigest()


def extract_words(text: str) -> list[str]:
    """Return the lower-case words of a review, without punctuation."""
    return WORD.findall(text.replace("<br />", " ").lower())


def build_vocabulary(texts: Iterable[str], max_symbols: int) -> dict[str, int]:
    """Return the index of each of the most frequent words; 0 and 1 are reserved."""
    counts = Counter(word for text in texts for word in extract_words(text))
    return {word: i for i, (word, _) in enumerate(counts.most_common(max_symbols - NUM_RESERVED), NUM_RESERVED)}


def encode_reviews(reviews: Iterable[tuple[str, int]], vocabulary: dict[str, int], length: int) -> Examples:
    """Return the last `length` words of each review as indices, padded at the end, and the labels."""
    rows, labels = [], []
    for text, label in reviews:
        indices = [vocabulary.get(word, UNKNOWN) for word in extract_words(text)[-length:]] or [UNKNOWN]
        rows.append(indices + [PADDING] * (length - len(indices)))
        labels.append(label)
    return Examples(torch.tensor(rows, dtype=torch.int32), torch.tensor(labels))


def load_iam(settings: TaskSettings, folder: Path) -> Splits:
    """Read IAM's words in its official layout: words.txt and the folder words/ of images."""
    path = next((folder / name for name in LISTS if (folder / name).is_file()), folder / LISTS[0])
    limits = {"train": settings.num_train, "valid": settings.num_valid, "test": None}
    words = {name: draw_words(chosen, limits[name]) for name, chosen in split_words(folder, read_words(path)).items()}
    alphabet = sorted({character for _, text in words["train"] for character in text})
    indices = {character: i for i, character in enumerate(alphabet, PADDING + 1)}
    longest = max(len(text) for chosen in words.values() for _, text in chosen)
    splits = {name: read_images(folder, chosen, indices, longest) for name, chosen in words.items()}
    images = {name: sha256(examples.inputs.numpy().tobytes()).hexdigest() for name, examples in splits.items()}
    return Splits(**splits, num_symbols=1 + len(alphabet), data={path.name: file_sha256(path)} | images)


def read_words(path: Path) -> list[tuple[str, str]]:
    """Return name and transcription of the words that were segmented correctly, marked "ok".

    A line is `a01-000u-00-00 ok 154 408 768 27 51 AT A`: name, mark, six more fields, transcription.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    fields = [line.split(" ", 8) for line in lines if line.strip() and not line.startswith("#")]
    return [(name, text) for name, mark, *_, text in fields if mark == "ok"]


def split_words(folder: Path, words: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return the words of each split: the official ones if a list of them is there, else 90, 5 and 5% of the forms.

    A form was filled in by one writer, and all of its words are in one split.
    """
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    lists = {path.name: path for path in folder.glob("**/*set*.txt") if path.name in OFFICIAL_SPLITS}
    named = OFFICIAL_SPLITS.items() if lists else ()
    official = {line: split for name, split in named for line in lists[name].read_text(encoding="utf-8").split()}
    for word in words:
        form, line = word[0].rsplit("-", 2)[0], word[0].rsplit("-", 1)[0]
        name = official.get(line) if official else split_of_form(form)
        if name:
            splits[name].append(word)
    return splits


def split_of_form(form: str) -> str:
    """Return the split of a form, which depends on its name alone."""
    percentile = int(sha256(form.encode()).hexdigest(), 16) % 100
    return next(name for name, end in FORM_SHARES.items() if percentile < end)


def draw_words(words: Sequence[tuple[str, str]], limit: int | None) -> list[tuple[str, str]]:
    """Draw at most `limit` words, the same in every repetition."""
    return list(words) if limit is None or limit >= len(words) else random.Random(SPLIT_SEED).sample(words, limit)


def read_images(folder: Path, words: Sequence[tuple[str, str]], indices: Mapping[str, int], length: int) -> Examples:
    """Read the images of words and encode their transcriptions; a few unreadable images are left out."""
    images, labels, failures = [], [], []
    for name, text in words:
        try:
            images.append(read_image(image_path(folder, name)))
            labels.append(encode_text(text, indices, length))
        except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError for a broken PNG
            failures.append(error)
    if len(failures) > max(1, MAX_UNREADABLE * len(words)):
        raise ValueError(f"{len(failures)} of {len(words)} images cannot be read, first {failures[0]}")
    return Examples(torch.stack(images), torch.tensor(labels))


def image_path(folder: Path, name: str) -> Path:
    """Return the path of a word's image, as in words/a01/a01-000u/a01-000u-00-00.png."""
    part, form, _ = name.split("-", 2)
    return folder / "words" / part / f"{part}-{form}" / f"{name}.png"


def read_image(path: Path) -> Tensor:
    """Read an image as bytes [32, 128]: black is 255, its proportions are kept, and it is padded with 0 (white)."""
    from PIL import Image  # only IAM needs Pillow

    with Image.open(path) as file:
        image = file.convert("L")
    scale = min(IMAGE_HEIGHT / image.height, IMAGE_WIDTH / image.width)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    canvas = np.zeros((IMAGE_HEIGHT, IMAGE_WIDTH), np.uint8)
    top = (IMAGE_HEIGHT - size[1]) // 2
    canvas[top : top + size[1], : size[0]] = 255 - np.asarray(image.resize(size))
    return torch.from_numpy(canvas)


def encode_text(text: str, indices: Mapping[str, int], length: int) -> list[int]:
    """Return the characters as indices, padded to `length`; one that no training word has is an unreachable index."""
    symbols = [indices.get(character, len(indices) + 1) for character in text]
    return symbols + [PADDING] * (length - len(symbols))


LOADERS = {"adding": load_adding, "mnist": load_mnist, "imdb": load_imdb, "iam": load_iam}
