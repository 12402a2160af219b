"""The bitext of cases.py as fixtures."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relumt.prep import binarization
from tests.prep import cases
from tests.prep.cases import PAIRS, Bitext, preprocess_in_process


@pytest.fixture(autouse=True, scope="module")
def fast_preprocess() -> Iterator[Callable[[list[str]], tuple[int, str]]]:
    """Replace the subprocess of fairseq-preprocess; yield the function that starts it."""
    original = binarization.run_fairseq_preprocess
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarization, "run_fairseq_preprocess", preprocess_in_process)
        yield original


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    return PAIRS


@pytest.fixture(scope="session")
def write_bitext() -> Callable[[Path], Bitext]:
    return cases.write_bitext


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    return cases.write_bitext(tmp_path)
