"""`relumt filter`: texts that can be read only once, outputs that are inputs, texts that make no sense."""

import gzip
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from relumt import files
from relumt.analysis import filter as corpus_filter
from relumt.analysis.filter import CopiedPairs
from tests.plugin.model.build import write_checkpoint, write_data_bin

pytestmark = pytest.mark.attack("corpora")

SOURCE = "w1 w2 w3\nw6\nw2 w2 w2 w2\nw5 unheard\n"
TARGET = "w4 w5\nw7 w8 w9\nw3\nw1 w2\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), "--attention", "rela_i")


@pytest.fixture
def run(attack, checkpoint):
    """Return a function that filters o.de and o.en in the attack's folder; its arguments replace the usual options."""
    write_data_bin(attack.folder / "data-bin", [(3, 3)], "train")
    (attack.folder / "o.de").write_text(SOURCE)
    (attack.folder / "o.en").write_text(TARGET)

    def filter_texts(*options, **paths):
        given = {"checkpoint": checkpoint, "data": "data-bin", "src": "o.de", "tgt": "o.en", "out": "kept"} | paths
        arguments = [word for name, path in given.items() for word in (f"--{name}", path)]
        return attack.relumt("filter", *arguments, *options, allow_changes="out" not in paths and not options)

    return filter_texts


def read(attack, *names):
    return [(attack.folder / name).read_text() for name in names]


def feed(path: Path, text: str) -> None:
    threading.Thread(target=path.write_text, args=[text], daemon=True).start()


def test_pipes_are_read_once(attack, run):
    expected = run("--keep", "0.5") and read(attack, "kept.scores", "kept.de", "kept.en")
    for name, text in (("pipe.de", SOURCE), ("pipe.en", TARGET)):
        os.mkfifo(attack.folder / name)
        feed(attack.folder / name, text)
    assert run("--keep", "0.5", src="pipe.de", tgt="pipe.en").status == 0
    assert read(attack, "kept.scores", "kept.de", "kept.en") == expected and expected[1]


def test_one_process_can_write_both_pipes_in_turn(attack):
    """Reading one text completely before the other would wait forever."""
    lines = 50_000
    for name in ("pipe.de", "pipe.en"):
        os.mkfifo(attack.folder / name)
    script = f"exec 3>pipe.de 4>pipe.en; for i in {{1..{lines}}}; do echo $i >&3; echo $i >&4; done"
    with subprocess.Popen(["bash", "-c", script]):
        pairs = CopiedPairs((attack.folder / "pipe.de", attack.folder / "pipe.en"), attack.folder)
    attack.outcomes.append("handled")
    assert len(pairs) == lines and list(pairs)[-1] == (str(lines), str(lines))


def test_nothing_is_left_of_the_copy(attack):
    for name in ("o.de", "o.en"):
        (attack.folder / name).write_text("a\n")
    before = set(attack.folder.iterdir())
    pairs = CopiedPairs((attack.folder / "o.de", attack.folder / "o.en"), attack.folder)
    attack.outcomes.append("handled")
    assert set(attack.folder.iterdir()) == before and list(pairs) == [("a", "a")] == list(pairs)


@pytest.mark.slow
def test_process_substitution(attack, run, checkpoint):
    expected = run("--keep", "0.5") and read(attack, "kept.scores", "kept.de", "kept.en")
    command = f"relumt filter --checkpoint {checkpoint} --data data-bin --src <(cat o.de) --tgt <(cat o.en) --out again"
    command = command.replace("relumt", "$PYTHON -P -m relumt.cli", 1)
    assert attack.process(["bash", "-c", f"{command} --keep 0.5"]).status == 0
    assert read(attack, "again.scores", "again.de", "again.en") == expected


@pytest.mark.parametrize(
    ("paths", "link"),
    [
        ({"src": "o.scores", "out": "o"}, None),
        ({"out": "o"}, None),
        ({"out": "new"}, ("symlink", "o.de", "new.de")),
        ({"out": "new"}, ("hard", "o.en", "new.en")),
        ({"out": "new"}, ("symlink", "data-bin/dict.de.txt", "new.scores")),
        ({"out": "new"}, ("symlink", "CHECKPOINT", "new.en")),
        ({"out": "new"}, ("hard", "data-bin/train.de-en.de.idx", "new.de")),
    ],
)
def test_an_input_is_never_overwritten(attack, run, checkpoint, paths, link):
    (attack.folder / "o.scores").write_text("w1\nw2\nw3\nw4\n")
    if link:
        kind, source, name = link
        source = checkpoint if source == "CHECKPOINT" else Path(source).absolute()
        Path(name).symlink_to(source) if kind == "symlink" else os.link(source, name)
    ended = run("--keep", "1", **paths)
    assert ended.status == 2 and "would overwrite the input" in ended.error


@pytest.mark.parametrize("name", ["kept.scores", "kept.de", "kept.en"])
def test_a_folder_in_place_of_an_output_is_refused_before_the_work(attack, run, name):
    (attack.folder / name).mkdir()
    ended = run("--keep", "1", out="kept")
    assert ended.status == 2 and "found a folder" in ended.error


@pytest.mark.parametrize("out", [".", "/", "o.de/kept"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(run, out):
    assert run("--keep", "1", out=out).status == 2


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"", b"", "empty file"),
        (b"w1\n", b"", "empty file"),
        (b"w1\nw2\n", b"w1\n", "o.de has 2 lines, "),
        (b"w1\n\n\n", b"w1\nw2\n", "o.de has 3 lines, "),
        (b"w1\n" * 5000 + b"\xff\n", b"w1\n" * 5001, "o.de:5001: not valid UTF-8"),
        (b"w1\n", b"w1 \xed\xa0\x80\n", "o.en:1: not valid UTF-8"),
        (gzip.compress(b"w1\n", mtime=0), b"w1\n", "not valid UTF-8"),
    ],
)
def test_texts_that_do_not_fit(attack, run, source, target, message):
    (attack.folder / "o.de").write_bytes(source)
    (attack.folder / "o.en").write_bytes(target)
    ended = run("--keep", "1", out="kept")
    assert ended.status == 2 and message in ended.error


def test_odd_lines_are_scored(attack, run):
    lines = ["", "\x00\x0b\x85", "</s> <pad> <unk>", "w1\rw2\u2028w3", "w1 " * 500, "\U0010ffff \ufeff"]
    for name in ("o.de", "o.en"):
        (attack.folder / name).write_text("".join(f"{line}\n" for line in lines), newline="\n")
    assert run("--keep", "1").status == 0
    assert [len(text.splitlines()) for text in read(attack, "kept.de", "kept.en")] == [6, 6]


def test_both_selected_texts_appear_or_none(attack, run, monkeypatch):
    def fail(path, mode):
        if path.name.startswith(".kept.en"):
            raise OSError(28, "No space left on device")
        return open(path, mode, encoding="utf-8", newline="\n")

    monkeypatch.setattr(corpus_filter, "open_text", fail)
    assert run("--keep", "1").status == 1
    assert [path.name for path in attack.folder.glob("*kept*")] == ["kept.scores"]


@pytest.mark.parametrize("failing", range(4))
def test_an_interruption_never_leaves_a_new_text_beside_an_old_one(attack, run, monkeypatch, failing):
    """The calls that make the new texts durable or put them in their places: any of them may be the last one."""
    assert run("--keep", "1").status == 0
    old = dict(zip(("kept.de", "kept.en"), read(attack, "kept.de", "kept.en"), strict=True))
    calls = iter(range(100))

    def interrupted(function):
        def call(path, *arguments):
            if (".kept.de" in str(path) or ".kept.en" in str(path)) and next(calls) == failing:
                raise KeyboardInterrupt
            return function(path, *arguments)

        return call

    monkeypatch.setattr(files, "sync", interrupted(files.sync))
    monkeypatch.setattr(Path, "replace", interrupted(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        corpus_filter.write_selected([("new", "new")] * 4, np.ones(4, bool), (Path("kept.de"), Path("kept.en")))
    are_old = {name: Path(name).read_text() == text for name, text in old.items() if Path(name).exists()}
    assert len(set(are_old.values())) < 2, are_old


def test_a_text_that_changes_meanwhile_is_selected_as_it_was_scored(attack, run, monkeypatch):
    write_scores = corpus_filter.write_scores

    def change_and_write(*arguments):
        (attack.folder / "o.de").write_text("other\n")
        return write_scores(*arguments)

    monkeypatch.setattr(corpus_filter, "write_scores", change_and_write)
    assert run("--keep", "1").status == 0
    assert read(attack, "kept.de", "kept.en") == [SOURCE, TARGET]


def test_scores_of_damaged_weights(attack, run, checkpoint):
    state = torch.load(checkpoint, weights_only=False)
    for value in state["model"].values():
        if value.is_floating_point():
            value.fill_(float("nan"))
    torch.save(state, attack.folder / "nan.pt")
    ended = run("--keep", "1", checkpoint="nan.pt")
    assert ended.status == 1 and "probabilities are not numbers" in ended.error
    assert not list(attack.folder.glob("*kept*"))


def test_texts_of_the_user_are_not_replaced(attack, run):
    (attack.folder / "kept.en").write_text("the user's\n")
    ended = run("--keep", "1", out="kept")
    assert ended.status == 2 and "kept.en: exists, but not as an earlier output of relumt filter" in ended.error
    assert read(attack, "kept.en") == ["the user's\n"] and not (attack.folder / "kept.scores").exists()
