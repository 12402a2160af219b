"""Logs and translations: damaged, mixed, or with text that looks like fairseq's own lines."""

from pathlib import Path

import pytest

from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.document_translations import load_chunks
from relumt.runs.training_log import find_divergence, read_training_log
from relumt.runs.translations import align_translations, read_generated, read_speed
from tests.runs.cases import write_data_bin

pytestmark = pytest.mark.attack("records")

STAMP = "2026-01-01 10:00:00 | INFO | "
STARTED = (
    f"{STAMP}fairseq_cli.train | num. shared model params: 1,000 (num. trained: 1,000)\n"
    f"{STAMP}fairseq_cli.train | training on 1 devices (GPUs/TPUs)\n"
)
INTERVAL = (
    f'{STAMP}train_inner | {{"epoch": 1, "update": 0.5, "loss": "9", "wps": "900", "wall": "4", "num_updates": "3"}}\n'
)
EPOCH = (
    f'{STAMP}valid | {{"epoch": 1, "valid_loss": "8.5"}}\n'
    f'{STAMP}train | {{"epoch": 1, "train_wps": "640", "train_wall": "10", "train_num_updates": "6"}}\n'
)
LOG = STARTED + INTERVAL + EPOCH


@pytest.fixture
def log(attack) -> Path:
    return attack.folder / "train.log"


BETTER = '{"epoch": 9, "valid_loss": "0.1", "train_wps": "1e9", "train_num_updates": "999", "wps": "1e9", "wall": "1"}'
FOREIGN_LINES = {
    "a path": f"{STAMP}fairseq_cli.train | {{'data': 'x | INFO | train | {BETTER}'}}\n",
    "a flag": f"$ fairseq-train x --restore-file 'a | INFO | valid | {BETTER}'\n",
    "a sentence": f"{STAMP}fairseq.tasks.translation | example reference: | INFO | train | {BETTER}\n",
    "a warning": f"UserWarning: 2026-01-01 10:00:00 | INFO | train_inner | {BETTER}\n",
    "another level": f"2026-01-01 10:00:00 | DEBUG | train | {BETTER}\n",
    "another logger": f"{STAMP}train_outer | {BETTER}\n",
    "parameters": f"{STAMP}x | num. shared model params: 7 (num. trained: 7)\n",
    "parameters in a path": "data-bin/num. shared model params: 7 (num.)\n",
    "binary": "\0\x01\x02\ufffd\n",
    "an escape sequence": f"\x1b[31m{STAMP}train | {BETTER}\n",
    "cut off": f'{STAMP}train | {{"epoch": 9, "train_num_updates": "9\n',
    "no object": f"{STAMP}train | [1, 2]\n{STAMP}train | {{}}\n",
    "deep nesting": f"{STAMP}train | {{{'[' * 20_000}{']' * 20_000}}}\n",
    "many digits": f'{STAMP}train | {{"epoch": {"9" * 5_000}, "train_num_updates": "1"}}\n',
    "words": f'{STAMP}train | {{"epoch": "one", "train_num_updates": "many"}}\n',
    "other types": f'{STAMP}train | {{"epoch": [1], "train_num_updates": {{}}}}\n',
    "not finite": f'{STAMP}train_inner | {{"wps": "inf", "wall": "nan", "num_updates": "nan", "loss": "-inf"}}\n',
    "NaN as loss": f'{STAMP}valid | {{"epoch": 1, "valid_loss": "nan"}}\n{STAMP}valid | {{"valid_loss": "-inf"}}\n',
    "a huge number": f'{STAMP}train | {{"epoch": "1e999", "train_num_updates": "1e999"}}\n',
    "missing keys": f'{STAMP}train | {{"epoch": 9}}\n{STAMP}train | {{"train_num_updates": 7}}\n{STAMP}valid | {{}}\n',
    "a command": "relumt-command: rm -rf /\n$ fairseq-train\n",
}
"""Lines that are no part of fairseq's log; each must leave the summary as it is."""


@pytest.mark.parametrize("name", FOREIGN_LINES)
@pytest.mark.parametrize("place", [0, len(STARTED), len(STARTED + INTERVAL), len(LOG)])
def test_lines_that_are_not_fairseqs_change_nothing(attack, log, name, place):
    log.write_text(LOG)
    expected = read_training_log(log)
    log.write_text(LOG[:place] + FOREIGN_LINES[name] + LOG[place:])
    assert attack.reads(read_training_log, log) == ""
    assert read_training_log(log) == expected
    assert find_divergence(log) is None


@pytest.mark.parametrize(
    "text", ["", "\n", STARTED, STARTED + INTERVAL, EPOCH, LOG.replace("params", "parms"), "\0" * 9999]
)
def test_logs_of_unfinished_training_are_refused(attack, log, text):
    log.write_text(text)
    message = attack.reads(read_training_log, log)
    assert str(log) in message and "train" in message


def test_a_log_cut_off_anywhere_is_refused_or_read(attack, log):
    for length in range(0, len(LOG), 13):
        log.write_text(LOG[:length])
        assert attack.reads(read_training_log, log)
    log.write_bytes(LOG.encode() + bytes(range(256)))
    assert attack.reads(read_training_log, log) == ""


def test_training_without_a_speed_is_refused(attack, log):
    log.write_text(STARTED + EPOCH.replace('"train_wps": "640"', '"train_wps": "inf"'))
    assert str(log) in attack.reads(read_training_log, log)


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default1]:"])
def test_divergence_is_found_behind_the_prefix_of_a_process(attack, log, prefix):
    log.write_text(LOG + f"{prefix}FloatingPointError: Minimum loss scale reached (0.0001).\n")
    assert attack.reads(find_divergence, log) == ""
    assert find_divergence(log).reason == "Minimum loss scale reached (0.0001)."


@pytest.mark.parametrize(
    "line",
    [
        "$ fairseq-train 'x FloatingPointError: nan'",
        f"{STAMP}x | FloatingPointError: nan",
        "  raise FloatingPointError('x')",
        "see FloatingPointError: in the manual",
    ],
)
def test_mentions_of_divergence_are_no_divergence(attack, log, line):
    log.write_text(LOG + line + "\n")
    assert attack.reads(find_divergence, log) == ""
    assert find_divergence(log) is None


# Translations

OUTPUT = (
    "S-1\tein Hund\nT-1\ta dog\nH-1\t-0.5\ta dog\nD-1\t-0.5\ta dog\nP-1\t-0.5\n"
    "S-0\tja\nT-0\tyes\nH-0\t-0.1\tyes\nD-0\t-0.1\tyes\nP-0\t-0.1\n"
)
LAST = "Generate test with beam=5: BLEU4 = 0.00\n"


@pytest.fixture
def output(attack) -> Path:
    return attack.folder / "generate-test.txt"


@pytest.fixture
def data_bin(attack) -> DataBin:
    return open_data_bin(write_data_bin(attack.folder / "bin", sentences=2))


def score(path: Path, data_bin: DataBin) -> None:
    align_translations(read_generated(path), data_bin, "test")


DAMAGED_OUTPUT = {
    "empty": "",
    "no last line": OUTPUT,
    "cut off": (OUTPUT + LAST)[:-40],
    "cut off in a line": OUTPUT[:-30],
    "two whole translations": OUTPUT + LAST + OUTPUT + LAST,
    "a translation behind a truncated one": OUTPUT[: OUTPUT.index("S-0")] + OUTPUT + LAST,
    "a truncated translation behind a whole one": OUTPUT + LAST + OUTPUT[: OUTPUT.index("S-0")],
    "a second source": OUTPUT + "S-0\tja\n" + LAST,
    "a second reference": OUTPUT + "T-1\ta cat\n" + LAST,
    "no first sentence": OUTPUT[: OUTPUT.index("S-0")] + LAST,
    "no last sentence": OUTPUT[OUTPUT.index("S-0") :] + LAST,
    "no hypothesis": OUTPUT.replace("D-1\t-0.5\ta dog\n", "") + LAST,
    "no reference": OUTPUT.replace("T-1\ta dog\n", "") + LAST,
    "no score": OUTPUT.replace("D-1\t-0.5\ta dog", "D-1\ta dog") + LAST,
    "no tab": OUTPUT.replace("D-1\t-0.5\ta dog", "D-1 -0.5 a dog") + LAST,
    "no index": OUTPUT.replace("D-1\t", "D-\t") + LAST,
    "a negative index": OUTPUT.replace("D-1\t", "D--1\t") + LAST,
    "an index of other digits": OUTPUT.replace("D-1\t", "D-١\t") + LAST,
    "an index of many digits": OUTPUT + f"D-{'9' * 5_000}\t-1\tx\n" + LAST,
    "a huge index": OUTPUT + "D-999999999999999\t-1\tx\n" + LAST,
    "one index too many": OUTPUT + "S-2\tx\nT-2\tx\nD-2\t-1\tx\n" + LAST,
    "other indices": OUTPUT.replace("-1\t", "-7\t") + LAST,
    "no translations": LAST,
    "only a log": f"{STAMP}fairseq_cli.generate | loading model\n",
    "binary": "\0" * 1000,
}


@pytest.mark.parametrize(
    ("name", "prepared"),
    [(name, False) for name in DAMAGED_OUTPUT]
    + [(name, True) for name in DAMAGED_OUTPUT if name != "no reference"],  # the references are texts
)
def test_incomplete_or_mixed_translations_are_not_scored(attack, output, data_bin, name, prepared):
    if prepared:
        (data_bin.folder / "text").mkdir()
        data_bin.reference_path("test").write_text("yes\na dog\n")
        data_bin = open_data_bin_as_prepared(data_bin)
    output.write_text(DAMAGED_OUTPUT[name])
    assert attack.reads(score, output, data_bin)


def open_data_bin_as_prepared(data_bin: DataBin) -> DataBin:
    """The same data-bin with reference texts."""
    (data_bin.folder / "prepare.json").write_text(
        '{"source": "de", "target": "en", "bpe": "none", "tokenized": true, "lowercased": false, '
        '"plain_references": false}'
    )
    return open_data_bin(data_bin.folder)


ODD_TEXTS = [
    "",
    "a\tb",
    "D-0\t-1\tx",
    "Generate test",
    "S-1",
    "\x0b\x0c\x85\u2028",
    "\r",
    "H-0",
    "\ufeffx",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text[:9]))
def test_text_that_looks_like_output_stays_text(attack, output, data_bin, text):
    output.write_text(OUTPUT.replace("D-0\t-0.1\tyes", f"D-0\t-0.1\t{text}") + LAST, newline="\n")
    assert attack.reads(score, output, data_bin) == ""
    assert read_generated(output).hypotheses == {0: text, 1: "a dog"}


def test_of_several_hypotheses_the_first_counts(attack, output, data_bin):
    output.write_text(OUTPUT.replace("P-1", "D-1\t-0.9\ta cat\nP-1") + LAST)
    assert attack.reads(score, output, data_bin) == ""
    assert read_generated(output).hypotheses[1] == "a dog"


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", OUTPUT.encode("utf-16"), OUTPUT.encode() + b"D-0\t-1\t\xff\n" + LAST.encode()]
)
def test_translations_that_are_not_utf8_are_refused(attack, output, data_bin, data):
    output.write_bytes(data)
    assert str(output) in attack.reads(score, output, data_bin)


@pytest.mark.parametrize("lines", [0, 1, 3])
@pytest.mark.parametrize("name", ["test.en", "test.raw.en"])
def test_other_numbers_of_references_are_refused(attack, output, data_bin, name, lines):
    (data_bin.folder / "text").mkdir()
    for text in ("test.en", "test.raw.en"):
        (data_bin.folder / "text" / text).write_text("yes\n" * (lines if text == name else 2))
    prepared = open_data_bin_as_prepared(data_bin)
    (prepared.folder / "prepare.json").write_text(
        (prepared.folder / "prepare.json").read_text().replace('"plain_references": false', '"plain_references": true')
    )
    output.write_text(OUTPUT + LAST)
    message = attack.reads(score, output, open_data_bin(data_bin.folder))
    assert f"{name}: expected 2 references" in message and f"found {lines}" in message


def test_an_empty_test_set_is_not_scored(attack, output):
    data_bin = open_data_bin(write_data_bin(attack.folder / "empty", sentences=0))
    output.write_text(LAST)
    assert "there is no sentence to translate" in attack.reads(score, output, data_bin)


@pytest.mark.parametrize(
    "line",
    [
        "D-0\t-1\tTranslated 1 sentences (1 tokens) in 1s (1.0 sentences/s, 99999.0 tokens/s)",
        "x INFO:fairseq_cli.generate:Translated 1 sentences (1 tokens, 99999.0 tokens/s)",
        f"{STAMP}other | Translated 1 sentences (1 tokens) in 1s (1.0 sentences/s, 99999.0 tokens/s)",
        f"{STAMP}fairseq_cli.generate | Translated 1 sentences (1 tokens) in 1s (1.0 sentences/s, inf tokens/s)",
        f"{STAMP}fairseq_cli.generate | Translated 1 sentences (1 tokens) in 1s (1.0 sentences/s, 1.2.3 tokens/s)",
    ],
)
def test_a_sentence_about_speed_is_no_speed(attack, output, line):
    output.write_text(f"{line}\n")
    assert attack.reads(read_speed, output) == ""
    assert read_speed(output) is None


@pytest.mark.parametrize("chunks", [[2], [1, 1, 1], [], [1] * 100])
def test_missing_chunks_are_refused(attack, output, chunks):
    output.write_text(OUTPUT + LAST)
    assert attack.reads(load_chunks, read_generated(output), "test", chunks, "<sep>")
