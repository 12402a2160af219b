"""Binarising with fairseq's own preprocess, in a process of its own so that its output can be kept."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from relumt.errors import UserError
from relumt.files import file_sha256

SPECIAL_TYPES = 4  # <s> <pad> </s> <unk>, which fairseq keeps in every dictionary but does not write


def binarise(
    prefixes: dict[str, Path], languages: tuple[str, str], out: Path, log: Path, joined: bool, workers: int
) -> None:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    prefixes: split -> path without the language's suffix. log: a file of the scratch folder for its output.
    Raises `UserError` with fairseq's last words if it fails, and keeps the log where temporary files go.
    """
    command = [sys.executable, "-P", "-m", "fairseq_cli.preprocess"]
    command += ["--source-lang", languages[0], "--target-lang", languages[1]]
    for split, prefix in prefixes.items():
        command += [f"--{split}pref", str(prefix)]
    command += ["--destdir", str(out), "--workers", str(workers)]
    if joined:
        command.append("--joined-dictionary")
    with log.open("w", encoding="utf-8") as output:
        status = _run(command, output)
    if status != 0:
        last_line = (log.read_text(encoding="utf-8").strip().splitlines() or ["no output"])[-1]
        with tempfile.NamedTemporaryFile(prefix="fairseq-preprocess-", suffix=".log", delete=False) as kept:
            kept.write(log.read_bytes())
        raise UserError(f"fairseq-preprocess failed with status {status}: {last_line}; its output: {kept.name}")


def add_word(word: str, dictionary: Path) -> None:
    """Add a word to fairseq's dictionary, at its end, so that the words there keep their numbers.

    Raises:
        UserError: the word is there already, hence in the text.
    """
    text = dictionary.read_text(encoding="utf-8")
    if any(line.rpartition(" ")[0] == word for line in text.split("\n")):
        raise UserError(f"the text itself has the word {word}; name another --document-separator")
    dictionary.write_text(f"{text}{word} 1\n", encoding="utf-8")


def describe_dictionary(path: Path) -> dict[str, int | str]:
    """Return the number of types of a dictionary, fairseq's special ones included, and its SHA-256."""
    return {"types": path.read_bytes().count(b"\n") + SPECIAL_TYPES, "sha256": file_sha256(path)}


def _run(command: list[str], log: IO[str]) -> int:
    """Run `command` in a session of its own, and end all of it if this process is interrupted."""
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
