"""Damaged files of every kind that relumt reads: refused in one line that names them, or read as they were.

Files with a checksum are never read with another content. Of others, such as a log, some damage cannot be noticed.
"""

import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from relumt.analysis.record import read_analysis
from relumt.corpora.alignment import read_alignments
from relumt.corpora.contrastive import ExampleInContext, import_examples, read_examples
from relumt.corpora.document_lengths import read_document_lengths
from relumt.papers.context import TableContext
from relumt.papers.speeds import TrainingAndDecodingSpeeds, read_speeds, speed_file
from relumt.plugin.checkpoints.loading import load_checkpoint_safely
from relumt.runs.data_bin import open_data_bin
from relumt.runs.dataset_config import read_models, require_dataset
from relumt.runs.inference.export import read_model
from relumt.runs.inference.text_encoding import load_segmenter
from relumt.runs.record import find_record
from relumt.runs.training_log import read_training_log
from relumt.runs.translations import align_translations, read_generated
from tests.attacks.attack import error_of, problem_of, relumt
from tests.attacks.training import bytes_of, save, weights

RUN = Path("runs/small/softmax/1")
SMALL = Path("data-bin/small")
CONTEXT = TableContext("rela_table2", Path("runs"), "small", Path("plots"))
SPEEDS = speed_file(CONTEXT, "small")


@dataclass(frozen=True)
class Reader:
    """What reads a file of the workshop.

    Attributes:
        path: the file.
        read: returns its content.
        is_whole: whether a file that is cut off anywhere is refused.
        is_sealed: whether any damage is refused, unless the content is the same.
    """

    path: Path
    read: Callable[[], Any]
    is_whole: bool = True
    is_sealed: bool = False


READERS = {
    "checkpoint": Reader(Path("small.pt"), lambda: weights(Path("small.pt")), is_sealed=True),
    "stock fairseq's": Reader(Path("stock.pt"), lambda: weights(Path("stock.pt")), is_sealed=True),
    "exported weights": Reader(
        Path("exported/model.safetensors"), lambda: bytes_of(read_model(Path("exported"))["model"]), is_sealed=True
    ),
    "merges": Reader(
        Path("prepared/bpe.codes"), lambda: load_segmenter(Path("prepared"))(["der Hund"]), is_sealed=True
    ),
    "exported settings": Reader(Path("exported/config.json"), lambda: read_model(Path("exported"))["cfg"]),
    "run.json": Reader(RUN / "run.json", lambda: find_record(RUN)),
    "analysis.json": Reader(RUN / "analysis.json", lambda: read_analysis(RUN / "analysis.json")),
    "prepare.json": Reader(Path("prepared/prepare.json"), lambda: open_data_bin(Path("prepared"))),
    "speeds": Reader(SPEEDS, lambda: read_speeds(CONTEXT, "small", TrainingAndDecodingSpeeds)),
    "ContraPro": Reader(
        Path("contrapro.json"), lambda: import_examples(Path("contrapro.json"), lambda entries: [[] for _ in entries])
    ),
    "examples": Reader(Path("examples.jsonl"), lambda: read_examples(Path("examples.jsonl"), ExampleInContext)),
    "n-best list": Reader(RUN / "generate-test.txt", lambda: read_generated(RUN / "generate-test.txt", float)),
    "translations": Reader(
        RUN / "generate-test.txt",
        lambda: align_translations(read_generated(RUN / "generate-test.txt"), open_data_bin(SMALL), "test"),
    ),
    "documents": Reader(Path("documents"), lambda: read_document_lengths(Path("documents"), 4)),
    "alignments": Reader(Path("gold.align"), lambda: read_alignments(Path("gold.align"), 0, 3), is_whole=False),
    "models.toml": Reader(Path("configs/models.toml"), lambda: read_models(Path("configs")), is_whole=False),
    "dataset": Reader(
        Path("configs/datasets/small.toml"), lambda: require_dataset("small", Path("configs/datasets")), is_whole=False
    ),
    "dictionary": Reader(SMALL / "dict.en.txt", lambda: open_data_bin(SMALL).dictionaries(), is_whole=False),
}


@pytest.fixture(scope="module")
def files(workshop, tmp_path_factory) -> Path:
    """The workshop with more files."""
    folder = tmp_path_factory.mktemp("files") / "work"
    shutil.copytree(workshop, folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        write_files()
    return folder


def write_files() -> None:
    save(Path("small.pt"), 6)
    torch.save(load_checkpoint_safely("small.pt"), "stock.pt")
    relumt("export model.pt --to safetensors --out exported --data bin")
    texts = " ".join(f"--{split} corpus/{split}" for split in ("train", "valid", "test"))
    relumt(f"prepare --src de --tgt en {texts} --out prepared --vocab-size 60")
    ratio = {"softmax": {"median": 1.0, "low": 1.0, "high": 1.0}}
    measured = {"what": "40 steps", "baseline": "softmax", "device": "cpu", "revision": "c", "relative": ratio}
    SPEEDS.write_text(json.dumps({"training": measured, "decoding": measured}))
    entry = {"document id": "d", "segment id": 1, "src segment": "it", "ref segment": "es", "src pronoun": "it"}
    entry |= {"ref pronoun": "es", "errors": [{"contrastive": "er"}]}
    Path("contrapro.json").write_text(json.dumps([entry]))


@pytest.fixture
def reader(request, files, tmp_path, monkeypatch) -> Reader:
    """A reader in a copy of the files."""
    monkeypatch.chdir(shutil.copytree(files, tmp_path / "work"))
    return READERS[request.param]


def every_reader(attribute: str = "path"):
    """Let a test take all readers, or those that have an attribute."""
    names = [name for name, one in READERS.items() if getattr(one, attribute)]
    return pytest.mark.parametrize("reader", names, indirect=True)


def damages(good: bytes, seed: int) -> Iterator[bytes]:
    """Overwrite, zero, flip, drop, repeat or append bytes at random, mostly at the begin and at the end."""
    generator = random.Random(seed)
    at = generator.randrange(generator.choice((0, 0, max(0, len(good) - 1500), max(0, len(good) - 100))), len(good))
    length = min(generator.choice((1, 2, 16, 1000, 4096)), len(good) - at)
    yield good[:at] + generator.randbytes(length) + good[at + length :]
    yield good[:at] + bytes(length) + good[at + length :]
    yield good[:at] + bytes([good[at] ^ 1 << generator.randrange(8)]) + good[at + 1 :]
    yield good[:at] + good[at + length :]
    yield good[:at] + good[at : at + length] + good[at:]
    yield good + generator.randbytes(length)


@every_reader()
def test_damage_is_refused_or_changes_nothing(reader):
    good, expected = reader.path.read_bytes(), reader.read()
    problems = []
    for seed in range(16):
        for bad in damages(good, seed):
            reader.path.write_bytes(bad)
            problems.append(problem_of(reader.read))
            if not problems[-1]:
                assert reader.read() == expected or not reader.is_sealed
    found = [problem for problem in problems if problem]
    # a sixth of the damage is bytes behind the end, which nothing reads
    assert len(found) > len(problems) * (5 / 6 - 0.1 if reader.is_sealed else 0.1)
    assert all(reader.path.name in problem or str(reader.path.parent) in problem for problem in found)


@every_reader("is_whole")
def test_a_file_that_is_cut_off_is_refused(reader):
    good, expected = reader.path.read_bytes(), reader.read()
    for length in (*range(0, len(good), len(good) // 40 + 1), *range(max(0, len(good) - 60), len(good))):
        reader.path.write_bytes(good[:length])
        lacks_nothing = length == len(good) - 1 or b"\nGenerate " in good[:length]
        assert problem_of(reader.read) or (lacks_nothing and reader.read() == expected), length


@every_reader()
def test_something_else_in_place_of_a_file_is_refused(reader):
    reader.path.write_bytes(bytes(range(256)) * 9)
    assert problem_of(reader.read)
    reader.path.write_bytes("a text\n".encode("utf-16"))
    assert problem_of(reader.read) or reader.path.name.startswith("dict.")
    reader.path.unlink()
    reader.path.mkdir()
    assert problem_of(reader.read)


@pytest.mark.parametrize("name", ["dict.de.txt", "test.de-en.de.idx", "test.de-en.en.bin"])
def test_a_data_bin_that_was_copied_in_part_is_refused(work, capfd, name):
    path = Path("bin", name)
    good = path.read_bytes()
    for length in (len(good) // 3, len(good) - 2):
        path.write_bytes(good[:length])
        error = error_of(lambda: relumt("analyze model.pt --data bin --numbers-only --out out"), capfd)
        assert "bin" in error


@pytest.mark.parametrize("name", ["train.de-en.de.bin", "train.de-en.en.idx", "train1.de-en.de.bin", "train.docs"])
def test_a_change_of_the_training_data_is_noticed_whatever_the_times_say(work, name):
    path = SMALL / name
    path.write_bytes(b"text" if not path.exists() else path.read_bytes())
    before, times = open_data_bin(SMALL).training_checksum("train"), path.stat()
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert open_data_bin(SMALL).training_checksum("train") != before


def test_a_table_names_the_run_that_is_damaged_or_misplaced(work, capfd):
    copy = shutil.copytree(RUN, Path("runs/small/stock/1"))
    assert "small/stock/1: expected the folder of a run, found that of small/softmax/1" in error_of(
        lambda: relumt("table"), capfd
    )
    (copy / "run.json").write_text("{")
    assert "small/stock/1/run.json: not in the expected format" in error_of(lambda: relumt("table"), capfd)


def test_lines_that_others_wrote_to_a_log_change_nothing(work):
    path = RUN / "train.log"
    lines, expected = path.read_text().splitlines(keepends=True), read_training_log(path)
    last = lines[-1]
    for foreign in ("UserWarning: " + last, "  " + last, last[:-9] + "\n", "\0\n", last.replace("| train |", "| x |")):
        for place in range(len(lines) + 1):
            path.write_text("".join([*lines[:place], foreign, *lines[place:]]))
            assert read_training_log(path) == expected


def test_a_record_of_an_archive_that_pytorch_would_take_for_an_empty_one_is_refused(tmp_path):
    torch.save({"model": {"weight": torch.ones(3)}}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as good, zipfile.ZipFile(tmp_path / "odd.pt", "w") as odd:
        for entry in good.infolist():
            copied = zipfile.ZipInfo(entry.filename)
            copied.external_attr = 0x10 if entry.filename.endswith("data/0") else 0
            odd.writestr(copied, good.read(entry))
    assert "has the attribute of a folder" in problem_of(lambda: load_checkpoint_safely(tmp_path / "odd.pt"))
