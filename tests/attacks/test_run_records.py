"""run.json: damaged in every way, misplaced, unreadable; a run that is damaged says how to recover it."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relumt.errors import UserError
from relumt.papers.experiments import Experiment
from relumt.papers.grid.jobs import Job, JobState
from relumt.runs.evaluation_record import DocumentResults, SubsetScores
from relumt.runs.record import BACKUP, RUN_RECORD, AcceptedChange, RunRecord, find_record, save_record
from tests.runs.cases import scored_record

pytestmark = pytest.mark.attack("records")

PLACEHOLDER = '"@@"'
RAW_VALUES = {
    "null": "null",
    "empty": '""',
    "negative": "-1",
    "infinite": "1e999",
    "fraction": "0.5",
    "list": "[]",
    "object": "{}",
    "true": "true",
    "long": f'"{"x" * 10_000}"',
    "deep": "[" * 10_000 + "]" * 10_000,
    "digits": "9" * 5_000,
    "path": '"../../etc"',
    "line break": r'"a\nb"',
}
"""Name → JSON to put in the place of each value."""

STRICT = {"null", "infinite", "fraction", "deep", "digits", "true"}
"""Values that no text, count, list or object can have."""


def full_record() -> RunRecord:
    """A record with every field."""
    record = scored_record()
    test = record.test_evaluation
    test = replace(
        test,
        scored_files={"bleu_tokenized": ("test.hyp.tok", "test.ref.tok")},
        subsets={"short": SubsetScores(2, test.scores)},
        documents=DocumentResults(3, 2, 1, True, test.scores),
    )
    return replace(
        record,
        accepted_changes=[AcceptedChange("2026-01-02", ["device name A (now B)"])],
        evaluations={"test": test},
        extra_flags=["--lr", "1"],
    )


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value below `value`."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from paths(entry, (*path, key))


@pytest.fixture
def folder(attack) -> Path:
    folder = attack.folder / "runs" / "small" / "softmax" / "1"
    save_record(folder, full_record())
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "checkpoint_best.pt").write_bytes(b"whole")
    return folder


def damaged_records(folder: Path, raw: str | None) -> Iterator[str]:
    """The record with each value replaced by `raw`, or removed if it is None."""
    text = (folder / RUN_RECORD).read_text()
    for path in paths(json.loads(text)):
        record = json.loads(text)
        parent = record
        for key in path[:-1]:
            parent = parent[key]
        if raw is None:
            del parent[path[-1]]
        else:
            parent[path[-1]] = PLACEHOLDER.strip('"')
        yield json.dumps(record).replace(PLACEHOLDER, raw or "")


@pytest.mark.parametrize("name", RAW_VALUES)
def test_every_value_is_checked(attack, folder, name):
    texts = list(damaged_records(folder, RAW_VALUES[name]))[::2]
    messages = []
    for text in texts:
        (folder / RUN_RECORD).write_text(text)
        messages.append(attack.reads(find_record, folder))
    refused = [message for message in messages if message]
    assert len(texts) > 50
    assert all(len(message) < 600 and BACKUP in message for message in refused if "schema" not in message)
    assert len(refused) > (0.6 if name in STRICT else 0.2) * len(texts)


def test_every_key_may_be_missing(attack, folder):
    required = 0
    for text in damaged_records(folder, None):
        (folder / RUN_RECORD).write_text(text)
        required += bool(attack.reads(find_record, folder))
    assert required > 50


def test_what_is_accepted_makes_a_table(attack, folder):
    """Values of another kind that are valid must not fail later: one from each field of text."""
    for raw in ('""', r'"a\nb"', '"x"', "{}"):
        for text in list(damaged_records(folder, raw))[::15]:
            (folder / RUN_RECORD).write_text(text)
            attack.relumt("table", "--runs", "runs")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"\0" * 500, b"null", b"[]", b"1", b'"run"', b"{}", b'{"schema": 2}', b"\xff\xfe{\0}\0", b"{'a': 1}"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schema": ' + b"1" * 5000 + b"}",
        *(
            b'{"schema": %s}' % schema
            for schema in (b"true", b"2.0", b'"2"', b"0", b"1", b"-1", b"null", b"[2]", b"2e0")
        ),
    ],
    ids=lambda text: repr(text[:24]),
)
def test_other_content_is_refused(attack, folder, text):
    (folder / RUN_RECORD).write_bytes(text)
    message = attack.reads(find_record, folder)
    assert str(folder / RUN_RECORD) in message and "delete" not in message
    ended = attack.relumt("table", "--runs", "runs")
    assert ended.status == 2 and f"small/softmax/1/{RUN_RECORD}" in ended.error


def test_truncated_records_are_refused(attack, folder):
    whole = (folder / RUN_RECORD).read_bytes()
    for length in range(0, len(whole) - 2, 97):
        (folder / RUN_RECORD).write_bytes(whole[:length])
        assert attack.reads(find_record, folder)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "cp037"])
def test_other_encodings_are_refused(attack, folder, encoding):
    (folder / RUN_RECORD).write_bytes((folder / RUN_RECORD).read_text().encode(encoding))
    assert attack.reads(find_record, folder)


def test_of_two_equal_keys_the_last_one_counts(attack, folder):
    text = (folder / RUN_RECORD).read_text().replace('"seed": 1,', '"seed": 2, "seed": 1,')
    (folder / RUN_RECORD).write_text(text)
    assert attack.reads(find_record, folder) == ""
    assert find_record(folder).seed == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device", "dangling"])
def test_other_kinds_of_files_are_refused(attack, folder, kind):
    path = folder / RUN_RECORD
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "device": "/dev/zero", "dangling": "nowhere"}[kind])
    message = attack.reads(find_record, folder)
    assert bool(message) == (kind != "dangling")
    assert attack.relumt("table", "--runs", "runs").status == 2


@pytest.mark.parametrize(("field", "value"), [("dataset", "other"), ("model", "reluformer"), ("seed", 7)])
def test_a_record_of_another_run_is_refused(attack, folder, field, value):
    """A copied folder would count as a run of another seed, model or dataset."""
    record = replace(full_record(), **{field: value})
    save_record(folder, record)
    for arguments in ((), ("--dataset", "small")):
        ended = attack.relumt("table", "--runs", "runs", *arguments)
        assert (
            ended.status == 2
            and f"small/softmax/1: expected the folder of a run, found that of {record.name}" in ended.error
        )


def test_a_record_says_how_to_recover(attack, folder):
    """The advice restores the record; it never tells to delete a folder whose checkpoints are intact."""
    whole = (folder / RUN_RECORD).read_bytes()
    (folder / RUN_RECORD).write_bytes(whole[:100])
    advice = attack.reads(find_record, folder).partition("restore it: ")[2]
    assert os.system(advice) == 0
    assert (folder / RUN_RECORD).read_bytes() == whole
    (folder / BACKUP).unlink()
    (folder / RUN_RECORD).write_bytes(whole[:100])
    message = attack.reads(find_record, folder)
    assert "restore it from a copy, or set RUNS to another folder" in message and "need not be deleted" in message


def test_advice_is_quoted_for_the_shell(attack):
    folder = attack.folder / f"a run; {attack.payload}" / "1"
    save_record(folder, full_record())
    (folder / RUN_RECORD).write_text("{")
    os.system(attack.reads(find_record, folder).partition("restore it: ")[2])
    assert attack.reads(find_record, folder) == ""


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["tokens_per_second", "wall_seconds"])
def test_a_record_that_could_not_be_read_again_is_not_written(attack, folder, field, number):
    before = (folder / RUN_RECORD).read_bytes()
    record = full_record()
    damaged = replace(record, training=replace(record.training, **{field: number}))
    assert "it was not written" in attack.reads(save_record, folder, damaged)
    assert (folder / RUN_RECORD).read_bytes() == before == (folder / BACKUP).read_bytes()


def test_one_damaged_run_is_named_among_others(attack, folder):
    other = attack.folder / "runs" / "small" / "stock" / "1"
    save_record(other, replace(full_record(), model="stock"))
    (other / RUN_RECORD).write_text("{")
    ended = attack.relumt("table", "--runs", "runs")
    assert ended.status == 2 and f"stock/1/{RUN_RECORD}" in ended.error
    with pytest.raises(UserError):
        find_record(other)
    assert find_record(folder) == full_record()


UNREADABLE = ["", "{", "[]", "null", '{"schema": 1}', "[" * 20_000, '{"schema": 2}', "\0"]


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: repr(text[:12]))
def test_a_damaged_run_does_not_end_a_grid(attack, folder, text):
    """A grid asks every job whether it is finished, then for its outcome: one run's record concerns that run alone."""
    job = Job(Experiment("small", "softmax"), 1, attack.folder / "runs", attack.folder)
    (folder / RUN_RECORD).write_text(text)
    assert attack.reads(job.is_finished) == "" and not job.is_finished()
    assert str(folder / RUN_RECORD) in attack.reads(job.outcome, 0)
    assert (job.outcome(1), job.outcome(2)) == (JobState.FAILED, JobState.REFUSED)
