"""Dictionaries and binary files have the bytes that fairseq-preprocess writes."""

import random
from pathlib import Path

import pytest
from fairseq import options
from fairseq_cli import preprocess

from relumt.prep.binarization import binarize

LANGUAGES = ("de", "en")


def write_texts(folder: Path, num_types: int) -> None:
    """Write random words, with ties in frequency, words that only valid and test have, and empty lines."""
    generator = random.Random(num_types)
    folder.mkdir()
    for split, num_lines in (("train", 300), ("valid", 20), ("test", 1)):
        for language in LANGUAGES:
            first = 0 if split == "train" else num_types // 2
            words = [f"{language[0]}ß{generator.randrange(first, first + num_types)}@@" for _ in range(num_lines * 5)]
            lines = [" ".join(words[start : start + generator.randrange(6)]) for start in range(0, len(words), 5)]
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    every_type = " ".join(f"w{number}" for number in range(num_types))
    with (folder / "train.en").open("a", encoding="utf-8") as file:
        file.write(f"{every_type}\n")


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("num_types", [1, 50, 70_000])  # more than 65,500 types need four bytes per token
def test_files_equal_those_of_fairseq_preprocess(tmp_path, num_types, joined):
    texts, expected, out = (tmp_path / name for name in ("texts", "expected", "out"))
    write_texts(texts, num_types)
    arguments = ["--source-lang", "de", "--target-lang", "en", "--destdir", str(expected)]
    for split in ("train", "valid", "test"):
        arguments += [f"--{split}pref", str(texts / split)]
    preprocess.main(
        options.get_preprocessing_parser().parse_args([*arguments, *(["--joined-dictionary"] if joined else [])])
    )
    preprocess.logger.handlers.clear()  # every call adds a file
    out.mkdir()
    binarize(texts, LANGUAGES, out, joined)
    files = {path.name: path.read_bytes() for path in expected.iterdir() if path.name != "preprocess.log"}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    assert len(files) == 14
