"""The bitext of cases.py as fixtures."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.prep import cases
from tests.prep.cases import PAIRS, Bitext


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    return PAIRS


@pytest.fixture(scope="session")
def write_bitext() -> Callable[[Path], Bitext]:
    return cases.write_bitext


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    return cases.write_bitext(tmp_path)
