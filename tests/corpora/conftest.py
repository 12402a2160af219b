"""The bitext of cases.py as fixtures, and published files without downloads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.corpora import published_texts
from relumt.corpora.published_files import Source
from tests.corpora import cases
from tests.corpora.cases import PAIRS, Bitext


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    return PAIRS


@pytest.fixture(scope="session")
def write_bitext() -> Callable[[Path], Bitext]:
    return cases.write_bitext


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    return cases.write_bitext(tmp_path)


@pytest.fixture
def unverified(monkeypatch):
    """Take the files that are there, whatever their size and checksum."""

    def fetch(source: Source, raw: Path) -> Path:
        assert (raw / source.name).is_file(), source.name
        return raw / source.name

    monkeypatch.setattr(published_texts, "fetch", fetch)
