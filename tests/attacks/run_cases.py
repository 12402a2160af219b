"""A data-bin and configurations for attacks on runs."""

from pathlib import Path

from tests.runs.cases import write_data_bin

PREPARED = {
    **{"source": "de", "target": "en", "bpe": "none"},
    **{"tokenized": True, "lowercased": False, "plain_references": True},
}
"""prepare.json."""


def write_prepared_data_bin(folder: Path) -> Path:
    """Write a data-bin of 8 sentences with texts, documents and tokens."""
    write_data_bin(folder, record=PREPARED, sentences=8)
    (folder / "train.docs").write_text("4\n4\n")
    (folder / "text").mkdir()
    (folder / "text" / "test.en").write_text("a\n" * 8)
    (folder / "text" / "test.raw.en").write_text("A\n" * 8)
    for language in ("de", "en"):
        (folder / f"train.de-en.{language}.bin").write_bytes(bytes(range(16)))
    return folder
