"""Downloads switched off for tests on small copies of published files."""

from pathlib import Path

import pytest

from relumt.prep.corpora import published_text
from relumt.prep.corpora.sources import Source


@pytest.fixture
def unverified(monkeypatch):
    """Take the files that are there, whatever their size and checksum."""

    def fetch(source: Source, raw: Path) -> Path:
        assert (raw / source.name).is_file(), source.name
        return raw / source.name

    monkeypatch.setattr(published_text, "fetch", fetch)
