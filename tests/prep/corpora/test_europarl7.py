"""Europarl7: documents as Maruf et al. publish them, and training text with and without documents."""

import dataclasses

import pytest

from relumt.cli import main
from relumt.prep.corpora import europarl7
from relumt.prep.corpora.europarl7 import OPENING, Europarl7, cut
from relumt.prep.corpora.registry import CORPORA
from tests.prep.corpora.test_packed import write_tar

HELD_OUT = [["This is first.", "That follows.", "A third of it."], ["Another one.", "Its end is here."]]


def marked(documents, language):
    return "".join("<d>\n" + "".join(f"{language}: {line}\n" for line in document) for document in documents)


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.setattr(europarl7, "EUROPARL_V7", dataclasses.replace(europarl7.EUROPARL_V7, checksum=None, size=None))
    monkeypatch.setattr(europarl7, "CHECKSUMS", dict.fromkeys(europarl7.CHECKSUMS))
    folder = tmp_path / "raw"
    folder.mkdir()
    for pattern in europarl7.HELD_OUT.values():
        for language in ("en", "de"):
            (folder / pattern.format(language)).write_text(marked(HELD_OUT, language))
    return folder


def run(raw):
    main(["corpus", "europarl7_en_de", "--raw", str(raw), "--out", str(raw.parent / "bin"), "--vocab-size", "60"])
    return raw.parent / "bin.text", raw.parent / "bin"


def lengths(path):
    return [int(line) for line in path.read_text().split()]


def test_documents_of_the_authors(raw):
    documents = [[f"Line {i} of {d}." if (i, d) != (1, 0) else "" for i in range(4)] for d in range(3)]
    for language in ("en", "de"):
        (raw / europarl7.TRAIN.format(language)).write_text(marked(documents, language).replace("en: \n", "\n"))
    texts, data_bin = run(raw)
    assert lengths(texts / "valid.docs") == lengths(data_bin / "test.docs") == [3, 2]
    assert lengths(data_bin / "train.docs") == [1, 2, 4, 4]  # the empty line ends the first document
    assert (texts / "train.en").read_text().splitlines()[0] == "en : Line 0 of 0 ."
    assert (texts / "test.raw.de").read_text().splitlines()[0] == "de: This is first."


@pytest.mark.parametrize("packed", [True, False])
def test_running_text_is_cut_and_stripped_of_what_is_tested_on(raw, packed):
    lines = [f"Line {i} of all." for i in range(100)]
    lines[60], lines[61] = "That  'follows'.", "Recurs as 96 / 71."
    for pattern in europarl7.HELD_OUT.values():
        for language in ("en", "de"):
            with (raw / pattern.format(language)).open("a") as file:
                file.write(f"{language}: Recurs, as 96/71.\n")
    members = {}
    for language in ("en", "de"):
        text = "".join(f"{language}: {line}\n" for line in lines)
        text = text.replace(
            f"{language}: Line 50 of all.", OPENING if language == "en" else "Wiederaufnahme der Sitzung"
        )
        members[europarl7.RUNNING.format(language)] = text.encode()
    if packed:
        write_tar(raw / europarl7.EUROPARL_V7.name, members)
    else:
        for name, text in members.items():
            (raw / name.removeprefix("training/")).write_bytes(text)
    texts, data_bin = run(raw)
    assert lengths(data_bin / "train.docs") == [40, 10, 10, 28, 10]
    train = (texts / "train.en").read_text()
    assert "follows" not in train and "Recurs" not in train


def test_a_session_opens_a_document():
    assert cut([OPENING, "a", "b", OPENING, "c", *["d"] * 80]) == [3, 40, 40, 2]
    assert cut([]) == []


def test_sides_that_are_marked_differently_are_refused(raw, capsys):
    for language in ("en", "de"):
        (raw / europarl7.TRAIN.format(language)).write_text(marked(HELD_OUT, language))
    (raw / europarl7.HELD_OUT["test"].format("de")).write_text(marked([HELD_OUT[0] + HELD_OUT[1]], "de"))
    with pytest.raises(SystemExit) as stopped:
        run(raw)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "concatenated_en2de_test_en.txt has 7 lines but" in error


def test_the_small_corpus_is_the_beginning_of_running_text(raw, monkeypatch):
    monkeypatch.setitem(CORPORA, "europarl7_small", Europarl7(first=7, merges=40))
    for language in ("en", "de"):
        (raw / f"europarl-v7.de-en.{language}").write_text(
            "".join(f"{language}: Line {i} of all.\n" for i in range(50))
        )
    main(["corpus", "europarl7_small", "--raw", str(raw), "--out", str(raw.parent / "bin")])
    texts = raw.parent / "bin.text"
    assert len((texts / "train.en").read_text().splitlines()) == 7 and lengths(texts / "train.docs") == [7]
