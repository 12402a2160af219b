"""Scores of other programs: what they read, what run.json says, and programs that fail."""

import json
import shlex
import time
from hashlib import sha256
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.runs.data_bin import open_data_bin
from relumt.runs.evaluation_record import DocumentResults
from relumt.runs.record import load_record, save_record
from tests.runs.cases import PREPARED, scored_record, with_value, write_data_bin

RECORD = PREPARED | {"plain_references": True}
SOURCES = ["Ein Hund.", "Zwei Katzen, drei Kühe.", "Er schläft."]
REFERENCES = ["A dog.", "Two cats, three cows.", "He sleeps."]
HYPOTHESES = ["A dog.", "Two cats.", ""]
READ = "cat > received; "


def write_lines(path, lines):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run whose translations are scored; the working folder is beside it."""
    monkeypatch.chdir(tmp_path)
    data = write_data_bin(tmp_path / "data-bin", record=RECORD, sentences=3)
    write_lines(data / "text" / "test.raw.de", SOURCES)
    write_lines(data / "text" / "test.raw.en", REFERENCES)
    folder = tmp_path / "runs" / "small" / "softmax" / "1"
    write_lines(folder / "test.hyp", HYPOTHESES)
    write_lines(folder / "test.ref", REFERENCES)
    files = {"bleu_detokenized": ("test.hyp", "test.ref")}
    save_record(folder, with_value(scored_record(), "evaluations.test.scored_files", files))
    update(folder)
    return folder


def update(run, **values):
    """Let the record describe the data-bin as it is now, and the evaluation have these `values`."""
    record = load_record(run)
    checksum = open_data_bin(Path("data-bin")).evaluation_checksum("test")
    for name, value in {"setup.data": checksum, **values}.items():
        record = with_value(record, f"evaluations.test.{name}", value)
    save_record(run, record)


def score(run, script, *options):
    """Score with a script of the shell."""
    main(["score", str(run), "--external", f"sh -c {shlex.quote(script)}", *options])


def printed_segments(run, capsys, **values):
    update(run, **values)
    main(["score", str(run)])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def expected_segments():
    lines = zip(SOURCES, HYPOTHESES, REFERENCES, strict=True)
    return [dict(zip(("source", "translation", "reference"), line, strict=True)) for line in lines]


def test_the_program_reads_plain_text_and_its_scores_are_recorded(run, tmp_path, capsys):
    script = READ + r"""printf '0.5\n-1e-2\n7\n{"version": "metric 2.0, ü"}'"""
    score(run, script, "--name", "metric")
    received = [json.loads(line) for line in (tmp_path / "received").read_text().splitlines()]
    assert received == expected_segments()
    recorded = load_record(run).test_evaluation.external["metric"]
    assert recorded.score == pytest.approx((0.5 - 0.01 + 7) / 3)
    assert (recorded.version, recorded.command) == ("metric 2.0, ü", f"sh -c {shlex.quote(script)}")
    assert (run / recorded.segments).read_text() == "0.5\n-0.01\n7.0\n"
    assert recorded.sources_sha256 == sha256("\n".join(SOURCES).encode()).hexdigest()
    assert {"score": recorded.score, "name": "metric"}.items() <= json.loads(capsys.readouterr().out).items()


def test_a_score_can_be_removed(run, capsys):
    before = (run / "run.json").read_bytes()
    score(run, "yes 1 | head -n 3", "--name", "metric")
    capsys.readouterr()
    message = refused(run, capsys, 2, lambda: main(["score", str(run), "--remove", "metrics"]))
    assert "no score 'metrics' of test; did you mean metric? known: metric" in message
    main(["score", str(run), "--remove", "metric"])
    assert (run / "run.json").read_bytes() == before and not (run / "test.metric.scores").exists()


def test_scores_from_elsewhere_can_say_which_segments_they_belong_to(run, tmp_path, capsys):
    """What the printed segments were scored by does not count for another checkpoint or data-bin."""
    main(["score", str(run)])
    checksum = sha256(capsys.readouterr().out.encode()).hexdigest()
    write_lines(tmp_path / "scores", ["1", "2", "3", json.dumps({"version": "m", "input_sha256": checksum})])
    main(["score", str(run), "--external", "cat scores"])
    capsys.readouterr()
    assert load_record(run).test_evaluation.external["external"].score == 2
    write_lines(run / "test.hyp", [*HYPOTHESES[:2], "x"])
    message = refused(run, capsys, 1, lambda: main(["score", str(run), "--external", "cat scores"]))
    assert "scores of other segments (another checkpoint, subset or data-bin)" in message


def test_the_score_of_the_program_is_not_computed_again(run):
    score(run, r'printf "1\n2\n4\n{\"score\": 9, \"other\": [1]}"')
    recorded = load_record(run).test_evaluation.external["external"]
    assert recorded.score == 9 and recorded.signature == recorded.command


def test_without_a_program_the_segments_are_printed(run, capsys):
    before = (run / "run.json").read_bytes()
    assert printed_segments(run, capsys) == expected_segments()
    assert (run / "run.json").read_bytes() == before


def test_a_tokenized_data_bin_without_raw_text_is_detokenized(run, tmp_path, capsys):
    (tmp_path / "data-bin" / "prepare.json").write_text(json.dumps(RECORD | {"plain_references": False}))
    write_lines(tmp_path / "data-bin" / "text" / "test.de", ["Ein Hund .", "Zwei Katzen , drei Kühe .", "Er schläft ."])
    write_lines(tmp_path / "data-bin" / "text" / "test.en", ["A dog .", "Two cats , three cows .", "He sleeps ."])
    assert printed_segments(run, capsys) == expected_segments()


def test_texts_of_a_lowercased_data_bin_are_lowercased(run, tmp_path, capsys):
    """The texts before tokenization have case; a metric would penalize every translation for lacking it."""
    (tmp_path / "data-bin" / "prepare.json").write_text(json.dumps(RECORD | {"lowercased": True}))
    write_lines(run / "test.hyp", [line.lower() for line in HYPOTHESES])
    assert printed_segments(run, capsys) == [
        {key: text.lower() for key, text in segment.items()} for segment in expected_segments()
    ]


def test_sources_that_were_not_translated_are_refused(run, tmp_path, capsys):
    (tmp_path / "data-bin" / "test.de-en.de.bin").write_bytes(bytes([1] * 6))
    message = refused(run, capsys, 2, lambda: main(["score", str(run)]))
    assert "its test set is not the one that" in message and "evaluate the run again" in message


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, 'He said "yes. No" I left.'),
        ({"--document-separator": "<sep>"}, 'He said "yes. No "I left.'),
    ],
)
def test_documents_are_detokenized_as_they_were_scored(run, tmp_path, capsys, flags, expected):
    """Without separators, documents are joined first: quotes are paired across their sentences."""
    data = tmp_path / "data-bin"
    (data / "prepare.json").write_text(json.dumps(RECORD | {"plain_references": False}))
    for language in ("de", "en"):
        write_lines(data / "text" / f"test.{language}", ['He said " yes .', 'No " I left .', "He sleeps ."])
    (data / "test.docs").write_text("2\n1\n")
    write_lines(run / "test.ref", [expected, "He sleeps."])
    write_lines(run / "test.hyp", ["a", "b"])
    values = {"documents": DocumentResults(2, 2), "setup.flags": flags}
    assert printed_segments(run, capsys, **values)[0]["source"] == expected


def test_a_data_bin_without_texts_has_the_sources_that_fairseq_printed(run, tmp_path, capsys):
    (tmp_path / "data-bin" / "prepare.json").unlink()
    lines = [f"S-{n}\t{line}" for n, line in ((1, "Zwei Katzen , drei Kühe ."), (0, "Ein Hund ."), (2, "Er schläft ."))]
    write_lines(run / "generate-test.txt", [*lines, "Generate test with beam=5: BLEU4 = 1"])
    assert printed_segments(run, capsys) == expected_segments()


def refused(run, capsys, status, action):
    """Return the message of an action that ends with a status and one line, and leaves the run as it was."""
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"}
    with pytest.raises(SystemExit) as stopped:
        action()
    printed = capsys.readouterr()
    assert stopped.value.code == status and printed.out == ""
    (line,) = printed.err.splitlines()
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"} == before
    return line


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 1; exit 3", "--external ended with status 3; see its messages above"),
        (":", "printed 0 scores for 3 segments; expected one per line"),
        ("printf '1\\nnan\\n3\\n'", "expected a finite number, found 'nan'"),
    ],
)
def test_programs_that_fail_leave_the_run_as_it_was(run, capsys, script, message):
    assert message in refused(run, capsys, 1, lambda: score(run, script))


HANGS = "(trap '' TERM; sleep 60) & echo $! > pid; exec >&- 2>&-; sleep 60"


def test_a_program_that_hangs_is_killed_with_all_that_it_started(run, tmp_path, capsys):
    message = refused(run, capsys, 1, lambda: score(run, HANGS, "--time-limit", "1"))
    assert "--external was killed after the time limit of 1 s; give a longer one with --time-limit" in message
    stat, deadline = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat"), time.monotonic() + 20
    while stat.exists() and time.monotonic() < deadline:  # init has to collect it
        time.sleep(0.01)
    assert not stat.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--external", "no-such-program --x"], "'no-such-program --x': cannot be executed ([Errno 2] No such file"),
        (["--external", ""], "cannot be executed"),
        (["--external", "sh -c 'echo"], "cannot be executed (No closing quotation); quote it as for a shell"),
        (["--name", "chrf"], "which no score of sacreBLEU has as its name"),
        (["--name", "../a"], "expected a letter and up to 39 letters"),
        (["--subset", "valid"], "'valid' is not translated and scored; run relumt run --evaluate"),
        (["--data", "none"], "none: no such folder"),
    ],
)
def test_requests_that_cannot_work(run, capsys, arguments, message):
    command = ["score", str(run), "--external", "false", *arguments]
    assert message in refused(run, capsys, 2, lambda: main(command))


def test_a_data_bin_without_texts_has_no_documents_and_as_many_sources_as_segments(run, tmp_path, capsys):
    (tmp_path / "data-bin" / "prepare.json").unlink()
    write_lines(run / "generate-test.txt", ["S-0\tEin Hund .", "Generate test with beam=5: BLEU4 = 1"])
    update(run)
    assert "has 1 sources of test, but 3 references" in refused(run, capsys, 2, lambda: score(run, "false"))
    update(run, documents=DocumentResults(2, 2))
    assert "no source text, which scoring documents needs" in refused(run, capsys, 2, lambda: score(run, "false"))
