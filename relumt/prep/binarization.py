"""Binarization with fairseq-preprocess, in a subprocess so that its output can be captured."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.options import SPLITS

NUM_SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>, which are in every dictionary of fairseq but not in its file


def binarize(texts: Path, languages: tuple[str, str], out: Path, log: Path, joined: bool, workers: int) -> None:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    Args:
        texts: folder of the texts, {split}.{language}.
        languages: language codes, source first.
        out: the data-bin.
        log: file for the output of fairseq-preprocess.
        joined: use one dictionary for both languages.
        workers: number of processes.

    Raises:
        UserError: fairseq-preprocess failed. The message ends with the path of a copy of its output.
    """
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1]]
    for split in SPLITS:
        arguments += [f"--{split}pref", str(texts / split)]
    arguments += ["--destdir", str(out), "--workers", str(workers)]
    if joined:
        arguments.append("--joined-dictionary")
    status = run_fairseq_preprocess(arguments, log)
    if status != 0:
        last_line = (log.read_text(encoding="utf-8").strip().splitlines() or ["no output"])[-1]
        with tempfile.NamedTemporaryFile(prefix="fairseq-preprocess-", suffix=".log", delete=False) as copy:
            copy.write(log.read_bytes())
        raise UserError(f"fairseq-preprocess failed with status {status}: {last_line}; see its output: {copy.name}")


def run_fairseq_preprocess(arguments: list[str], log: Path) -> int:
    """Run fairseq-preprocess with its output in `log`; return its exit status."""
    command = [sys.executable, "-P", "-m", "fairseq_cli.preprocess", *arguments]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # it has workers of its own
            process.wait()
            raise


def add_word(word: str, dictionary: Path) -> None:
    """Append a word to fairseq's dictionary; the indices of the other words do not change.

    Raises:
        UserError: the dictionary, and hence the text, already has the word.
    """
    text = dictionary.read_text(encoding="utf-8")
    if any(line.rpartition(" ")[0] == word for line in text.split("\n")):
        raise UserError(f"the text contains the word {word}; choose another --document-separator")
    dictionary.write_text(f"{text}{word} 1\n", encoding="utf-8")


def describe_dictionary(path: Path) -> dict[str, int | str]:
    """Return the number of types in a dictionary, including fairseq's special symbols, and its SHA-256."""
    return {"types": path.read_bytes().count(b"\n") + NUM_SPECIAL_SYMBOLS, "sha256": file_sha256(path)}
