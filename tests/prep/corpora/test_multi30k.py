"""Multi30k: as published, tokenised and in lower case."""

import pytest

from relumt.cli import main
from relumt.prep.corpora import multi30k


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.setattr(multi30k, "CHECKSUMS", dict.fromkeys(multi30k.CHECKSUMS))
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, name in multi30k.NAMES.items():
        for language in ("de", "en"):
            lines = [f"a {language} caption , {split} number {n} .\n" for n in range(30)]
            (folder / f"{name}.lc.norm.tok.{language}").write_text("".join(lines))
    return folder


def test_texts_are_kept_as_they_are(raw, capsys):
    out = raw.parent / "bin"
    main(["corpus", "multi30k_de_en", "--raw", str(raw), "--out", str(out), "--vocab-size", "40"])
    for split, name in multi30k.NAMES.items():
        published = (raw / f"{name}.lc.norm.tok.de").read_text()
        assert (out.with_name("bin.text") / f"{split}.de").read_text() == published
    assert (out / "text" / "test.en").read_text() == (raw / "test_2016_flickr.lc.norm.tok.en").read_text()
    assert (out / "test.de-en.de.bin").is_file()


def test_another_text_by_that_name_is_refused(raw, monkeypatch, capsys):
    monkeypatch.undo()
    with pytest.raises(SystemExit):
        main(["corpus", "multi30k_de_en", "--raw", str(raw), "--out", str(raw.parent / "bin")])
    assert "train.lc.norm.tok.de" in capsys.readouterr().err and not (raw.parent / "bin").exists()
