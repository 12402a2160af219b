"""Multi30k: as published, tokenized and lowercased."""

import pytest

from relumt.cli import main
from relumt.corpora.published_corpora import Multi30k


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, texts in Multi30k.texts.items():
        for language, text in zip(("de", "en"), texts, strict=True):
            lines = [f"a {language} caption , {split} number {n} .\n" for n in range(30)]
            (folder / text.path).write_text("".join(lines))
    return folder


@pytest.mark.usefixtures("unverified")
def test_texts_are_kept_as_they_are(raw):
    out = raw.parent / "bin"
    main(["corpus", "multi30k_de_en", "--raw", str(raw), "--out", str(out), "--vocab-size", "40"])
    for split, (german, _) in Multi30k.texts.items():
        assert (out.with_name("bin.text") / f"{split}.de").read_text() == (raw / german.path).read_text()
    assert (out / "text" / "test.en").read_text() == (raw / "test_2016_flickr.lc.norm.tok.en").read_text()
    assert (out / "test.de-en.de.bin").is_file()


def test_another_text_by_that_name_is_refused(raw, capsys):
    with pytest.raises(SystemExit):
        main(["corpus", "multi30k_de_en", "--raw", str(raw), "--out", str(raw.parent / "bin")])
    assert "train.lc.norm.tok.de" in capsys.readouterr().err and not (raw.parent / "bin").exists()
