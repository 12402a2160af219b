"""Words of the IAM handwriting database, in its official layout: words.txt and the folder words/ of images.

A line of words.txt is `a01-000u-00-00 ok 154 408 768 27 51 AT A`: word, whether it was segmented correctly, six more
fields, transcription. Its image is words/a01/a01-000u/a01-000u-00-00.png.
"""

import random
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.one_layer.examples import SPLIT_SEED, Examples, Splits
from relumt.one_layer.models import IMAGE_HEIGHT, IMAGE_WIDTH, PADDING
from relumt.one_layer.settings import TaskSettings

LISTS = ("words.txt", "ascii/words.txt")
OFFICIAL_SPLITS = {
    "train": ("trainset.txt",),
    "valid": ("validationset1.txt", "validationset2.txt"),
    "test": ("testset.txt",),
}
"""Lines, such as a01-000u-00, of the task "large writer independent text line recognition"."""

FORM_SHARES = {"test": 5, "valid": 10, "train": 100}
"""Without the official lists: split -> upper end of its share of the forms, in percent."""

MAX_UNREADABLE = 0.001
"""Share of the images that may be missing or unreadable; archives are known to have a few empty ones."""

ADVICE = (
    "register with the IAM handwriting database (docs/results/inhibitor_table1.md), unpack words.txt and the folder "
    "words, and pass the folder of both as --iam; or leave iam out of --tasks"
)

Word = tuple[str, str]
"""Name and transcription."""


def load(settings: TaskSettings, folder: Path) -> Splits:
    """Read images [N, 32, 128] of bytes and transcriptions [N, L], padded with 0.

    Raises:
        UserError: a file is missing or damaged, or only some of the lists of the official splits are there.
    """
    path = find_list(folder)
    limits = {"train": settings.num_train, "valid": settings.num_valid, "test": None}
    words = {name: draw(chosen, limits[name]) for name, chosen in split_words(folder, read_list(path)).items()}
    if empty := [name for name, chosen in words.items() if not chosen]:
        raise UserError(f"{path}: has no words for {', '.join(empty)}; {ADVICE}")
    alphabet = sorted({character for _, text in words["train"] for character in text})
    indices = {character: i for i, character in enumerate(alphabet, PADDING + 1)}
    longest = max(len(text) for chosen in words.values() for _, text in chosen)
    splits = {name: read_examples(folder, chosen, indices, longest) for name, chosen in words.items()}
    digests = {path.name: file_sha256(path)} | {name: digest(examples.inputs) for name, examples in splits.items()}
    return Splits(**splits, num_symbols=1 + len(alphabet), data=digests)


def find_list(folder: Path) -> Path:
    """Return the path of words.txt; raise UserError if it or the folder of images is missing."""
    found = [folder / name for name in LISTS if (folder / name).is_file()]
    if not found or not (folder / "words").is_dir():
        raise UserError(f"{folder}: expected words.txt and the folder words, found not both; {ADVICE}")
    return found[0]


def read_list(path: Path) -> list[Word]:
    """Return the words that were segmented correctly; raise UserError if a line cannot be read."""
    words = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split(" ")
        if len(fields) < 9 or fields[1] not in ("ok", "err") or fields[0].count("-") != 3:
            raise UserError(f"{path}: line {number} is not 'NAME ok|err' and seven more fields; {ADVICE}")
        if fields[1] == "ok":
            words.append((fields[0], " ".join(fields[8:])))
    return words


def split_words(folder: Path, words: Sequence[Word]) -> dict[str, list[Word]]:
    """Return the words of each split: the official ones if their lists are there, else 90, 5 and 5% of the forms.

    A form was filled in by one writer, and all of its words are in one split.
    """
    splits: dict[str, list[Word]] = {name: [] for name in OFFICIAL_SPLITS}
    official = official_splits(folder)
    for word in words:
        form, line = word[0].rsplit("-", 2)[0], word[0].rsplit("-", 1)[0]
        name = official.get(line) if official else split_of_form(form)
        if name:
            splits[name].append(word)
    return splits


def official_splits(folder: Path) -> dict[str, str]:
    """Return line -> split as the official lists have it; nothing if none of them is in the folder.

    Raises:
        UserError: some of them are, and others are not.
    """
    paths = {path.name: path for path in folder.glob("**/*set*.txt")}
    files = {file: name for name, files in OFFICIAL_SPLITS.items() for file in files}
    if not files.keys() & paths.keys():
        return {}
    if missing := files.keys() - paths.keys():
        raise UserError(
            f"{folder}: {', '.join(sorted(missing))} of the official splits not found; add or remove all four"
        )
    return {line: name for file, name in files.items() for line in paths[file].read_text(encoding="utf-8").split()}


def split_of_form(form: str) -> str:
    """Return the split of a form, which depends on its name alone."""
    percentile = int(sha256(form.encode()).hexdigest(), 16) % 100
    return next(name for name, end in FORM_SHARES.items() if percentile < end)


def draw(words: Sequence[Word], limit: int | None) -> list[Word]:
    """Draw at most `limit` words, the same in every repetition."""
    return list(words) if limit is None or limit >= len(words) else random.Random(SPLIT_SEED).sample(words, limit)


def read_examples(folder: Path, words: Sequence[Word], indices: Mapping[str, int], length: int) -> Examples:
    """Read the images of words and encode their transcriptions; an unreadable image is left out.

    Raises:
        UserError: too many images are missing or unreadable, or Pillow is not installed.
    """
    images, labels, unreadable = [], [], []
    for name, text in words:
        path = image_path(folder, name)
        try:
            images.append(read_image(path))
        except (OSError, SyntaxError, ValueError):  # Pillow raises SyntaxError for a broken PNG
            unreadable.append(path)
        else:
            labels.append(encode(text, indices, length))
    if len(unreadable) > max(1, MAX_UNREADABLE * len(words)):
        raise UserError(
            f"{unreadable[0]}: missing or unreadable, as {len(unreadable)} of {len(words)} images are; {ADVICE}"
        )
    return Examples(torch.stack(images), torch.tensor(labels))


def image_path(folder: Path, name: str) -> Path:
    """Return the path of a word's image."""
    part, form, _ = name.split("-", 2)
    return folder / "words" / part / f"{part}-{form}" / f"{name}.png"


def read_image(path: Path) -> Tensor:
    """Read an image as bytes [32, 128]: black is 255, its proportions are kept, and it is padded with 0 (white).

    Raises:
        OSError, SyntaxError or ValueError: it is missing or cannot be decoded.
        UserError: Pillow is not installed.
    """
    pillow = import_pillow()
    with pillow.open(path) as file:
        image = file.convert("L")
    scale = min(IMAGE_HEIGHT / image.height, IMAGE_WIDTH / image.width)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    ink = 255 - np.asarray(image.resize(size))
    canvas = np.zeros((IMAGE_HEIGHT, IMAGE_WIDTH), np.uint8)
    top = (IMAGE_HEIGHT - size[1]) // 2
    canvas[top : top + size[1], : size[0]] = ink
    return torch.from_numpy(canvas)


def import_pillow() -> Any:
    """Return PIL.Image; raise UserError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("reading the images of IAM needs Pillow; run pip install pillow") from None
    return Image


def encode(text: str, indices: Mapping[str, int], length: int) -> list[int]:
    """Return the characters as indices, padded to `length`; one that no training word has is an unreachable index."""
    symbols = [indices.get(character, len(indices) + 1) for character in text]
    return symbols + [PADDING] * (length - len(symbols))


def digest(images: Tensor) -> str:
    """Return a checksum of images."""
    return sha256(images.numpy().tobytes()).hexdigest()
