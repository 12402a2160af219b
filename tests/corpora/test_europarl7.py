"""Europarl7: documents as Maruf et al. publish them, and training text with and without documents."""

import pytest

from relumt.cli import main
from relumt.corpora.published_corpora import CORPORA, RUNNING_TEXT, SESSION_START, Europarl7
from relumt.corpora.published_corpora import EUROPARL7_HELD_OUT as HELD_OUT
from relumt.corpora.published_corpora import EUROPARL7_TRAIN as TRAIN
from tests.corpora.test_published_files import write_tar

DOCUMENTS = [["This is first.", "That follows.", "A third of it."], ["Another one.", "Its end is here."]]


def marked(documents, language):
    return "".join("<d>\n" + "".join(f"{language}: {line}\n" for line in document) for document in documents)


@pytest.fixture
def raw(tmp_path, unverified):
    folder = tmp_path / "raw"
    folder.mkdir()
    for texts in HELD_OUT.values():
        write_documents(folder, texts, DOCUMENTS)
    return folder


def write_documents(folder, texts, documents):
    for language, text in zip(("en", "de"), texts, strict=True):
        (folder / text.path).write_text(marked(documents, language))


def run(raw):
    main(["corpus", "europarl7_en_de", "--raw", str(raw), "--out", str(raw.parent / "bin"), "--vocab-size", "60"])
    return raw.parent / "bin.text", raw.parent / "bin"


def lengths(path):
    return [int(line) for line in path.read_text().split()]


def test_the_authors_documents(raw):
    documents = [[f"Line {i} of {d}." if (i, d) != (1, 0) else "" for i in range(4)] for d in range(3)]
    write_documents(raw, TRAIN, documents)
    (raw / TRAIN[0].path).write_text(marked(documents, "en").replace("en: \n", "\n"))
    texts, data_bin = run(raw)
    assert lengths(texts / "valid.docs") == lengths(data_bin / "test.docs") == [3, 2]
    assert lengths(data_bin / "train.docs") == [1, 2, 4, 4]  # the empty line ends the first document
    assert (texts / "train.en").read_text().splitlines()[0] == "en : Line 0 of 0 ."
    assert (texts / "test.raw.de").read_text().splitlines()[0] == "de: This is first."


@pytest.mark.parametrize("packed", [True, False])
def test_running_text_is_cut_and_held_out_pairs_are_removed(raw, packed):
    lines = [f"Line {i} of all." for i in range(100)]
    lines[60], lines[61] = "That  'follows'.", "Recurs as 96 / 71."
    for texts in HELD_OUT.values():
        for language, text in zip(("en", "de"), texts, strict=True):
            with (raw / text.path).open("a") as file:
                file.write(f"{language}: Recurs, as 96/71.\n")
    members = {}
    for language, text in zip(("en", "de"), RUNNING_TEXT, strict=True):
        session_start = SESSION_START if language == "en" else "Wiederaufnahme der Sitzung"
        recurring_here = 62 if language == "en" else 63
        own_lines = ["Recurs as 96 / 71." if i == recurring_here else line for i, line in enumerate(lines)]
        content = "".join(f"{language}: {line}\n" for line in own_lines)
        members[text.member] = content.replace(f"{language}: Line 50 of all.", session_start).encode()
    if packed:
        write_tar(raw / RUNNING_TEXT[0].source.name, members)
    else:
        for name, text in members.items():
            (raw / name.removeprefix("training/")).write_bytes(text)
    texts, data_bin = run(raw)
    assert lengths(data_bin / "train.docs") == [40, 10, 10, 26, 10]
    for language in ("en", "de"):
        train = (texts / f"train.{language}").read_text()
        assert "follows" not in train and "Recurs" not in train and "Line 62 " not in train and "Line 63 " not in train


def test_the_small_corpus_is_the_start_of_running_text(raw, monkeypatch):
    monkeypatch.setitem(CORPORA, "europarl7_small", Europarl7(first=7, bpe_merges=40))
    for language in ("en", "de"):
        (raw / f"europarl-v7.de-en.{language}").write_text(
            "".join(f"{language}: Line {i} of all.\n" for i in range(50))
        )
    main(["corpus", "europarl7_small", "--raw", str(raw), "--out", str(raw.parent / "bin")])
    texts = raw.parent / "bin.text"
    assert len((texts / "train.en").read_text().splitlines()) == 7 and lengths(texts / "train.docs") == [7]
