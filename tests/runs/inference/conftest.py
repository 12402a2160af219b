"""The data-bin and models of cases.py as fixtures."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import relumt
from relumt.runs.inference.search import SearchSettings
from relumt.runs.inference.translator import Translator
from tests.runs.inference.cases import write_lively_checkpoint, write_text_data_bin


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return write_text_data_bin(tmp_path_factory.mktemp("data") / "data-bin")


@pytest.fixture(scope="session")
def lively_checkpoint(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes the checkpoint of a model, once for each combination of flags."""
    return cache(lambda *flags: write_lively_checkpoint(tmp_path_factory.mktemp("model"), *flags))


@pytest.fixture(scope="session")
def loaded_translator(lively_checkpoint, data) -> Translator:
    return relumt.load(lively_checkpoint("--attention", "relu", "--attention-qk-norm", "log_n"), data=data, cpu=True)


@pytest.fixture
def translator(loaded_translator) -> Translator:
    """A translator whose translations are short."""
    loaded_translator.search = SearchSettings(max_len_b=12)
    return loaded_translator
