"""MNIST from its four idx files, gzipped or not."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.one_layer.examples import Examples, Splits, split_off_validation
from relumt.one_layer.settings import TaskSettings

SIDE = 28
UNSIGNED_BYTES = 0x08
"""Third byte of an idx file: the type of its elements."""

PARTS = {"train": "train", "test": "t10k"}
KINDS = {"images": "images-idx3-ubyte", "labels": "labels-idx1-ubyte"}

ADVICE = (
    "download the four files of MNIST (docs/results/inhibitor_table1.md lists sources) and pass their folder as --mnist"
)


def load(settings: TaskSettings, folder: Path) -> Splits:
    """Read the images [N, 28, 28] and labels [N]; the first of the training files are split at random.

    Raises:
        UserError: a file is missing, damaged or not of the expected shape.
    """
    paths = required_files(folder)
    train, test = (read_part(paths[part, "images"], paths[part, "labels"]) for part in PARTS)
    kept, valid = split_off_validation(train, settings.num_train, settings.num_valid or 0)
    return Splits(kept, valid, test, data={path.name: file_sha256(path) for path in paths.values()})


def required_files(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the path of each file by part and kind.

    Raises:
        UserError: one is missing.
    """
    return {(part, kind): find_file(folder, f"{PARTS[part]}-{KINDS[kind]}") for part in PARTS for kind in KINDS}


def find_file(folder: Path, name: str) -> Path:
    """Return the path of an idx file, with or without .gz; raise UserError if there is none."""
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise UserError(f"{folder}: expected {name} or {name}.gz, found neither; {ADVICE}")


def read_part(images: Path, labels: Path) -> Examples:
    """Read a pair of files.

    Raises:
        UserError: a file is damaged, or they do not belong together.
    """
    examples = Examples(read_idx(images, [SIDE, SIDE]), read_idx(labels, []).long())
    if len(examples.inputs) != len(examples.targets):
        raise UserError(
            f"{images} has {len(examples.inputs)} images, {labels.name} has {len(examples.targets)} labels; {ADVICE}"
        )
    if examples.targets.max() > 9:
        raise UserError(f"{labels}: expected labels from 0 to 9, found {examples.targets.max()}; {ADVICE}")
    return examples


def read_idx(path: Path, item_shape: Sequence[int]) -> Tensor:
    """Read an idx file of bytes as a tensor [N, *item_shape].

    Raises:
        UserError: it is damaged, or holds something else.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: not a complete gzip file ({error}); {ADVICE}") from None
    num_dims = 1 + len(item_shape)
    header = struct.calcsize(f">HBB{num_dims}I")
    if len(content) < header:
        raise UserError(f"{path}: expected an idx file, found {len(content)} bytes; {ADVICE}")
    zero, kind, dims, *shape = struct.unpack_from(f">HBB{num_dims}I", content)
    if (zero, kind, dims, shape[1:]) != (0, UNSIGNED_BYTES, num_dims, list(item_shape)) or not shape[0]:
        raise UserError(f"{path}: expected an idx file of bytes of shape N × {list(item_shape)}; {ADVICE}")
    if len(content) != header + prod(shape):
        raise UserError(f"{path}: expected {header + prod(shape)} bytes, found {len(content)}; {ADVICE}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy())
