"""The tasks of [IN] Table 1: their sizes in each preset, and their data as tensors in memory. Shapes: N examples.

    adding   sequences [N, T, 2] of numbers and markers     sums [N] of the two marked numbers
    mnist    images [N, 28, 28] of bytes                    labels [N]
    imdb     word indices [N, T]                            labels [N]
    iam      images [N, 32, 128] of bytes                   transcriptions [N, L], padded with 0

docs/results/inhibitor_tables.md says what the files are. Preset smoke and the tests generate files of these formats.
"""

import gzip
import random
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from relumt.errors import UserError, describe_error


@dataclass(frozen=True)
class Settings:
    """Sizes and recipe of one task, equal for both mechanisms.

    Attributes:
        num_train: training examples, None for all of them.
        num_valid: validation examples: a part of the training data, or of IAM's validation words (None: all of them).
        num_test: test examples of the adding problem; other data has its own test set, which is used completely.
        length: tokens of an example; rows of an image (MNIST) or columns of its feature map (IAM) are tokens.
        epochs, batch_size: length and batch size of training.
        embed_dim, num_heads, feed_forward_dim, dropout: sizes and dropout of the layer.
        max_symbols: size of the vocabulary (IMDB) with padding and unknown words.
        initial_distance: of the Inhibitor's `init_projections`; 2 is its default, with which some trainings on the
            adding problem stay at the constant answer.
        learning_rates: candidates for the peak learning rate; each mechanism takes the best on the validation set.
        repetitions: seeds that are trained with each mechanism.
    """

    num_train: int | None
    num_valid: int | None
    num_test: int
    length: int
    epochs: int
    batch_size: int
    embed_dim: int
    num_heads: int
    feed_forward_dim: int
    dropout: float
    max_symbols: int = 0
    initial_distance: float = 2.0
    learning_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    repetitions: int = 20


ADDING = Settings(50_000, 5_000, 10_000, 100, 20, 64, 32, 2, 64, 0.0, initial_distance=1.0)
MNIST = Settings(None, 5_000, 0, 28, 20, 64, 64, 4, 128, 0.1)
IMDB = Settings(None, 2_500, 0, 200, 4, 32, 32, 2, 32, 0.1, max_symbols=20_000)
IAM = Settings(None, None, 0, 32, 30, 64, 64, 4, 128, 0.2)

RATES: dict[str, Any] = {"learning_rates": (1e-3, 3e-3)}
SHORT = RATES | {"repetitions": 5}
SMOKE = RATES | {"num_train": 256, "num_valid": 64, "num_test": 64, "epochs": 1, "repetitions": 2}
PRESETS: dict[str, dict[str, Settings]] = {
    "paper": {"adding": ADDING, "mnist": MNIST, "imdb": IMDB, "iam": IAM},
    "small": {
        "adding": replace(ADDING, **RATES, num_train=6_400, num_valid=1_000, num_test=5_000, epochs=6),
        "mnist": replace(MNIST, **SHORT, num_train=20_000, epochs=6),
        "imdb": replace(IMDB, **SHORT, epochs=2),
        "iam": replace(IAM, **SHORT, num_train=8_000, epochs=5),
    },
    "smoke": {
        "adding": replace(ADDING, **SMOKE, length=10),
        "mnist": replace(MNIST, **SMOKE),
        "imdb": replace(IMDB, **SMOKE, length=20, max_symbols=100),
        "iam": replace(IAM, **SMOKE),
    },
}
"""Preset -> task -> settings."""

PADDING = 0
"""Reserved index: padding of token sequences, and CTC's blank."""
UNKNOWN, NUM_RESERVED = 1, 2
WORD = re.compile(r"[a-z0-9']+")
LABELS = {"neg": 0, "pos": 1}

IMAGE_HEIGHT, IMAGE_WIDTH = 32, 128
"""Size of word images in pixels."""
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

SPLIT_SEED = 20231003
"""Draws which examples are kept and which of them are for validation: the same in every repetition."""


class Splits(NamedTuple):
    """The examples of a task; `num_symbols` is the size of IMDB's vocabulary or IAM's alphabet, with the reserved 0."""

    train: TensorDataset
    valid: TensorDataset
    test: TensorDataset
    num_symbols: int = 0


def load(task: str, settings: Settings, folder: Path) -> Splits:
    """Read the data of a task; raise UserError if a file is missing or damaged, or Pillow is not installed."""
    try:
        return {"adding": load_adding, "mnist": load_mnist, "imdb": load_imdb, "iam": load_iam}[task](settings, folder)
    except (OSError, ImportError, EOFError, zlib.error, struct.error, ValueError, LookupError, AssertionError) as error:
        found = f"{folder}: cannot read the data of {task} ({describe_error(error)})"
        raise UserError(f"{found}; docs/results/inhibitor_tables.md says what --{task} contains") from error


def split_off_validation(count: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Draw the numbers of the training examples and of those for validation."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
    num_train, num_valid = settings.num_train, settings.num_valid or 0
    return order[num_valid : None if num_train is None else num_valid + num_train], order[:num_valid]


def load_adding(settings: Settings, _: Path) -> Splits:
    """Draw examples: the same in every repetition, so that repetitions differ by the training alone."""
    sizes = settings.num_train or 0, settings.num_valid or 0, settings.num_test
    train, valid, test = (draw_sequences(size, settings.length, seed) for seed, size in enumerate(sizes, 1))
    return Splits(train, valid, test)


def draw_sequences(num_examples: int, length: int, seed: int) -> TensorDataset:
    """Draw sequences of a number in [0, 1) and a marker, and sums (Hochreiter and Schmidhuber 1997).

    One number of each half is marked. The sum has a variance of 1/6, the mean squared error of a constant answer.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(num_examples, length, generator=generator)
    half = length // 2
    markers = torch.zeros(num_examples, length)
    for start, end in ((0, half), (half, length)):
        markers.scatter_(1, torch.randint(start, end, (num_examples, 1), generator=generator), 1.0)
    return TensorDataset(torch.stack([numbers, markers], dim=-1), (numbers * markers).sum(1))


def load_mnist(settings: Settings, folder: Path) -> Splits:
    """Read the four idx files, gzipped or not; the training files are split at random."""
    images, labels = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
    train, test = (
        TensorDataset(read_idx(folder / images.format(part), 3), read_idx(folder / labels.format(part), 1).long())
        for part in ("train", "t10k")
    )
    kept, valid = split_off_validation(len(train), settings)
    return Splits(TensorDataset(*train[kept]), TensorDataset(*train[valid]), test)


def read_idx(path: Path, num_dims: int) -> Tensor:
    """Read an idx file of bytes, or PATH.gz: zeros, type and number of dimensions, their sizes, the elements."""
    packed = path.with_name(f"{path.name}.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    *magic, first = struct.unpack_from(">HBBI", content)
    shape = (first, *struct.unpack_from(f">{num_dims - 1}I", content, 8))
    if magic != [0, 0x08, num_dims]:  # 0x08: unsigned bytes
        raise ValueError(f"{path.name} is no idx file of bytes in {num_dims} dimensions")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * num_dims).reshape(shape).copy())


def load_imdb(settings: Settings, folder: Path) -> Splits:
    """Read the reviews of Maas et al. 2011; the vocabulary is that of the training examples."""
    reviews, test = read_reviews(folder, "train"), read_reviews(folder, "test")
    kept, held_out = split_off_validation(len(reviews), settings)
    train, valid = [reviews[i] for i in kept.tolist()], [reviews[i] for i in held_out.tolist()]
    counts = Counter(word for text, _ in train for word in extract_words(text))
    frequent = counts.most_common(settings.max_symbols - NUM_RESERVED)
    vocabulary = {word: i for i, (word, _) in enumerate(frequent, NUM_RESERVED)}
    encoded = [encode_reviews(part, vocabulary, settings.length) for part in (train, valid, test)]
    return Splits(encoded[0], encoded[1], encoded[2], NUM_RESERVED + len(vocabulary))


def read_reviews(folder: Path, part: str) -> list[tuple[str, int]]:
    """Return texts and labels, of a table `label<TAB>id<TAB>rating<TAB>text` or the archive, by the names of files."""
    table = folder / f"{part}.tsv.gz"
    if table.is_file():
        text = gzip.decompress(table.read_bytes()).decode("utf-8").removesuffix("\n")
        rows = (line.split("\t", 3) for line in text.split("\n"))  # reviews may have other line breaks
        return [(review, int(label)) for label, _, _, review in rows]
    paths = [(path, y) for name, y in LABELS.items() for path in sorted((folder / part / name).iterdir())]
    return [(path.read_text(encoding="utf-8", errors="replace"), y) for path, y in paths]


def extract_words(text: str) -> list[str]:
    """Return the lower-case words of a review, without punctuation."""
    return WORD.findall(text.replace("<br />", " ").lower())


def encode_reviews(reviews: Iterable[tuple[str, int]], vocabulary: Mapping[str, int], length: int) -> TensorDataset:
    """Return the last `length` words of each review as indices, padded at the end, and the labels."""
    rows, labels = [], []
    for text, label in reviews:
        indices = [vocabulary.get(word, UNKNOWN) for word in extract_words(text)[-length:]] or [UNKNOWN]
        rows.append(indices + [PADDING] * (length - len(indices)))
        labels.append(label)
    return TensorDataset(torch.tensor(rows, dtype=torch.int32), torch.tensor(labels))


def load_iam(settings: Settings, folder: Path) -> Splits:
    """Read IAM's words in its official layout: words.txt and the folder words/ of images."""
    words = split_words(folder, read_words(folder))
    for name, limit in (("train", settings.num_train), ("valid", settings.num_valid)):
        if limit is not None and limit < len(words[name]):
            words[name] = random.Random(SPLIT_SEED).sample(words[name], limit)
    alphabet = sorted({character for _, text in words["train"] for character in text})
    indices = {character: i for i, character in enumerate(alphabet, PADDING + 1)}
    longest = max(len(text) for chosen in words.values() for _, text in chosen)
    splits = {name: read_images(folder, chosen, indices, longest) for name, chosen in words.items()}
    return Splits(**splits, num_symbols=1 + len(alphabet))


def read_words(folder: Path) -> list[tuple[str, str]]:
    """Return name and transcription of the words that were segmented correctly, marked "ok".

    A line of words.txt is `a01-000u-00-00 ok 154 408 768 27 51 AT A`: name, mark, six more fields, transcription.
    """
    path, nested = folder / "words.txt", folder / "ascii" / "words.txt"
    lines = (nested if nested.is_file() else path).read_text(encoding="utf-8", errors="replace").splitlines()
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
        line = word[0].rsplit("-", 1)[0]
        percentile = int(sha256(line.rsplit("-", 1)[0].encode()).hexdigest(), 16) % 100
        drawn = next(name for name, end in FORM_SHARES.items() if percentile < end)
        if split := official.get(line) if official else drawn:
            splits[split].append(word)
    return splits


def read_images(
    folder: Path, words: Sequence[tuple[str, str]], indices: Mapping[str, int], length: int
) -> TensorDataset:
    """Read the images of words and encode their transcriptions as indices; a few unreadable images are left out.

    A character that is in no training word gets an index that no model predicts.
    """
    images, labels, failures = [], [], []
    for name, text in words:
        try:
            images.append(read_image(image_path(folder, name)))
            symbols = [indices.get(character, len(indices) + 1) for character in text]
            labels.append(symbols + [PADDING] * (length - len(symbols)))
        except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError for a broken PNG
            failures.append(error)
    if len(failures) > max(1, MAX_UNREADABLE * len(words)):
        raise ValueError(f"{len(failures)} of {len(words)} images cannot be read, first {failures[0]}")
    return TensorDataset(torch.stack(images), torch.tensor(labels))


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
