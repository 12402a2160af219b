"""Generated data in the file formats of MNIST, IMDB and IAM, for preset smoke and the tests. Scores mean nothing."""

import gzip
import struct
from pathlib import Path

import numpy as np

from relumt.papers.inhibitor.table1_data import image_path

NUM_EXAMPLES = {"train": 320, "test": 64}
GOOD = ("good", "great", "moving")
BAD = ("bad", "dull", "awful")
NEUTRAL = ("the", "film", "was", "a", "story", "of", "actors", "and", "scenes")
SYLLABLES = ("ba", "lo", "mi", "tu", "ne")
GLYPH_HEIGHT, GLYPH_WIDTH = 20, 14


def write_mnist(folder: Path) -> None:
    """Write digits that are ten random patterns under noise."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 2, (10, 28, 28)) * 200
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", NUM_EXAMPLES["train"]), ("t10k", NUM_EXAMPLES["test"])):
        labels = np.arange(count) % 10
        images = patterns[labels] + random.integers(0, 56, (count, 28, 28))
        for kind, items in (("images-idx3", images), ("labels-idx1", labels)):
            content = gzip.compress(encode_idx(items.astype(np.uint8)), mtime=0)
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(content)


def encode_idx(items: np.ndarray) -> bytes:
    """Return bytes of any shape as an idx file."""
    return struct.pack(f">HBB{items.ndim}I", 0, 0x08, items.ndim, *items.shape) + items.tobytes()


def write_imdb(folder: Path) -> None:
    """Write reviews with a few words that give their label away."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in NUM_EXAMPLES.items():
        lines = []
        for i in range(count):
            label = i % 2
            words = [*random.choice(NEUTRAL, 10), *random.choice(GOOD if label else BAD, 3)]
            lines.append(f"{label}\t{i}\t{9 if label else 2}\t{' '.join(random.permutation(words))}<br />\n")
        (folder / f"{part}.tsv.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def write_iam(folder: Path) -> None:
    """Write images of words whose letters are random patterns, one for each letter."""
    from PIL import Image  # only IAM needs Pillow

    random = np.random.default_rng(0)
    letters = sorted(set("".join(SYLLABLES)))
    glyphs = dict(zip(letters, random.integers(0, 2, (len(letters), GLYPH_HEIGHT, GLYPH_WIDTH)) * 255, strict=True))
    lines = ["# generated words"]
    for number in range(320):
        text = "".join(random.choice(SYLLABLES, random.integers(1, 4)))
        name = f"a01-{number // 8:03}u-00-{number % 8:02}"
        lines.append(f"{name} ok 154 0 0 {GLYPH_WIDTH * len(text)} {GLYPH_HEIGHT} NN {text}")
        path = image_path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = 255 - np.concatenate([glyphs[letter] for letter in text], axis=1)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "words.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


WRITERS = {"mnist": write_mnist, "imdb": write_imdb, "iam": write_iam}
"""Task -> function that writes its data to a folder."""
