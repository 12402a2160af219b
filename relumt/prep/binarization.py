"""Binarization with fairseq-preprocess, in a subprocess so that its output can be captured."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from relumt.child_processes import command_of_child
from relumt.errors import AttemptFailedError, UserError
from relumt.files import file_sha256
from relumt.prep.options import SPLITS
from relumt.text_files import read_clean_lines

NUM_SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>, which are in every dictionary of fairseq but not in its file


def binarize(texts: Path, languages: tuple[str, str], out: Path, joined: bool, workers: int) -> None:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    Args:
        texts: folder of the texts, {split}.{language}.
        languages: language codes, source first.
        out: the data-bin.
        joined: use one dictionary for both languages.
        workers: number of processes.

    Raises:
        AttemptFailedError: fairseq-preprocess failed. The message names a copy of its output.
    """
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1]]
    for split in SPLITS:
        arguments += [f"--{split}pref", str(texts / split)]
    arguments += ["--destdir", str(out), "--workers", str(workers)]
    if joined:
        arguments.append("--joined-dictionary")
    status, output = run_fairseq_preprocess(arguments)
    if status < 0:
        raise AttemptFailedError(f"fairseq-preprocess was ended by signal {-status}; is there enough memory?")
    if status > 0:
        last_line = (output.strip().splitlines() or ["no output"])[-1]
        raise AttemptFailedError(f"fairseq-preprocess failed with status {status}: {last_line}{_save_log(output)}")


def run_fairseq_preprocess(arguments: list[str]) -> tuple[int, str]:
    """Run fairseq-preprocess, which ends with this process; return its exit status and what it printed."""
    process = subprocess.Popen(
        command_of_child("fairseq_cli.preprocess", arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # not a file: if the disk is full, the output says so
        stderr=subprocess.STDOUT,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # it has workers of its own
        process.wait()
        raise
    return process.returncode, output


def _save_log(output: str) -> str:
    """Save the output of fairseq-preprocess; return where it is for an error message, "" if it cannot be saved."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fairseq-preprocess-", suffix=".log", encoding="utf-8", delete=False
        ) as copy:
            copy.write(output)
    except OSError:
        return ""
    return f"; see its output: {copy.name}"


def require_absent(word: str, text: Path, original: Path) -> None:
    """Raise `UserError` if a text has the separator as a word or subword; `original` is the user's file."""
    padded = f" {word} "
    for number, line in enumerate(read_clean_lines(text), start=1):
        if padded in f" {line} ":
            raise UserError(
                f"{original}: the text contains the word {word} (sentence {number}); choose another "
                "--document-separator"
            )


def add_word(word: str, dictionary: Path) -> None:
    """Append a word to fairseq's dictionary, which must not have it; the indices of the other words do not change."""
    with dictionary.open("a", encoding="utf-8") as file:
        file.write(f"{word} 1\n")


def describe_dictionary(path: Path) -> dict[str, int | str]:
    """Return the number of types in a dictionary, including fairseq's special symbols, and its SHA-256."""
    return {"types": path.read_bytes().count(b"\n") + NUM_SPECIAL_SYMBOLS, "sha256": file_sha256(path)}
