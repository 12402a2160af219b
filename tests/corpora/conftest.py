"""The bitext of cases.py as fixtures, and published files without downloads."""

from pathlib import Path

import pytest

from relumt.corpora import published_texts
from relumt.corpora.published_files import Source
from tests.corpora.cases import Bitext, write_bitext


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    return write_bitext(tmp_path)


@pytest.fixture
def unverified(monkeypatch):
    """Take the files that are there, whatever their size and checksum."""

    def fetch(source: Source, raw: Path) -> Path:
        assert (raw / source.name).is_file(), source.name
        return raw / source.name

    monkeypatch.setattr(published_texts, "fetch", fetch)
