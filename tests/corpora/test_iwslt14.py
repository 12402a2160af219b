"""IWSLT14 from small files of the same form: talks, evaluation sets, the split and the subsets."""

import tarfile

import pytest

from relumt.cli import main
from relumt.corpora.bitext import read_subsets
from relumt.corpora.published_corpora import (
    IWSLT14_TEST_SETS,
    MISALIGNED_TALK,
    Iwslt14,
    Segment,
    document_lengths,
    parse_segments,
)
from relumt.corpora.published_files import PublishedText, Source
from relumt.errors import UserError

TALK = """<url>http://example.org/{n}</url>
<keywords>talks, {language}</keywords>
<talkid>{n}</talkid>
<title>Title {n}, {language}</title>
<description>TED Talk: it’s {n}.</description>
"""


def write_training(folder, language, talks=3, sentences=40):
    with (folder / f"train.tags.de-en.{language}").open("w") as file:
        for n in range(talks):
            file.write(TALK.format(n=n, language=language))
            file.writelines(f" Sentence {i} of talk {n}, isn't it? \n" for i in range(sentences))


def write_evaluation(folder, name, language, talk="69", segments=3):
    lines = [f'<seg id="{i}"> The U.S. and “you’ll” see {i} things. </seg>\n' for i in range(1, segments + 1)]
    path = folder / f"IWSLT14.{name}.de-en.{language}.xml"
    path.write_text(f'<?xml version="1.0"?>\n<doc docid="{talk}" genre="lectures">\n{"".join(lines)}</doc>\n')


@pytest.fixture
def raw(tmp_path, unverified):
    folder = tmp_path / "raw" / "de-en"
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        write_training(folder, language)
        for name in IWSLT14_TEST_SETS:
            if name == "TEDX.dev2012":
                write_evaluation(folder, name, language, MISALIGNED_TALK, 150)
            else:
                write_evaluation(folder, name, language)
    return tmp_path / "raw"


@pytest.mark.parametrize(
    ("corpus", "lines", "documents"),
    [
        (Iwslt14(), 12 + 150, [3, 150, 3, 3, 3]),
        (Iwslt14(tedx=False), 12, [3, 3, 3, 3]),
        (Iwslt14(misaligned=False), 12 + 150 - 72, [3, 70, 8, 3, 3, 3]),
    ],
)
def test_the_test_set_can_be_chosen(raw, tmp_path, corpus, lines, documents):
    corpus.write_test(raw, tmp_path)
    german, english = ((tmp_path / f"test.{language}").read_text().splitlines() for language in ("de", "en"))
    assert len(german) == len(english) == lines
    assert english[0] == "the u.s. and “ you &apos;ll ” see 1 things ."
    assert [int(line) for line in (tmp_path / "test.docs").read_text().split()] == documents
    raw_english = (tmp_path / "test.raw.en").read_text().splitlines()
    assert len(raw_english) == lines and raw_english[0] == "The U.S. and “you'll” see 1 things."


def test_the_test_set_describes_its_subsets(raw, tmp_path):
    Iwslt14().write_test(raw, tmp_path)
    subsets = read_subsets(tmp_path / "test.subsets.json", 162)
    assert subsets["without TEDX.dev2012, as [RF]"] == list(range(3, 153))
    assert subsets["without 72 misaligned pairs"] == list(range(3 + 70, 3 + 142))
    Iwslt14(misaligned=False).write_test(raw, tmp_path)
    assert list(read_subsets(tmp_path / "test.subsets.json", 90)) == ["without TEDX.dev2012, as [RF]"]
    Iwslt14(tedx=False).write_test(raw, tmp_path)
    assert read_subsets(tmp_path / "test.subsets.json", 12) == {}


def test_a_missing_segment_ends_a_document():
    segments = [Segment("a", 1, ""), Segment("a", 2, ""), Segment("a", 4, ""), Segment("b", 5, "")]
    assert document_lengths(segments) == [2, 1, 1]


def test_the_command_creates_texts_and_a_data_bin_from_the_archive(raw, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "de-en.tgz", "w:gz") as archive:
        archive.add(raw / "de-en", "de-en")
    out = tmp_path / "data-bin" / "iwslt14"
    main(["corpus", "iwslt14_de_en", "--raw", str(packed), "--out", str(out), "--vocab-size", "60"])
    texts = tmp_path / "data-bin" / "iwslt14.text"
    pairs = 3 * 42
    train, valid = ((texts / f"{split}.en").read_text().splitlines() for split in ("train", "valid"))
    assert len(valid) == pairs // 23 and len(train) == pairs - pairs // 23
    assert valid[0] == "sentence 20 of talk 0 , isn &apos;t it ?"
    assert (texts / "valid.raw.en").read_text().splitlines()[0] == "Sentence 20 of talk 0, isn't it?"
    documents = [int(line) for line in (out / "train.docs").read_text().split()]
    assert sum(documents) == len(train) and len(documents) == 3 + pairs // 23
    assert (out / "train.de-en.de.bin").is_file() and (out / "test.docs").is_file()
    assert (out / "text" / "test.raw.en").read_text().startswith("The U.S. and")
    assert len(read_subsets(out / "text" / "test.subsets.json", 162)) == 2


def test_repeating_does_nothing_and_another_test_set_needs_overwrite(raw, tmp_path, capsys):
    out = tmp_path / "bin"
    command = ["corpus", "iwslt14_de_en", "--raw", str(raw), "--out", str(out), "--vocab-size", "60"]
    main(command)
    capsys.readouterr()
    main(command)
    assert [line.split(" is ")[1] for line in capsys.readouterr().err.splitlines()] == ["up to date"] * 2
    before = (tmp_path / "bin.text" / "test.en").read_text()
    with pytest.raises(SystemExit):
        main([*command, "--without-tedx"])
    assert "bin.text exists, but tedx was True, now False; give --overwrite" in capsys.readouterr().err
    assert (tmp_path / "bin.text" / "test.en").read_text() == before
    (tmp_path / "bin.text" / "sample").mkdir()
    (tmp_path / "bin.text" / "sample" / "mine.de").write_text("x\n")
    with pytest.raises(SystemExit):
        main([*command, "--without-tedx", "--overwrite"])
    refusal = "bin.text: --overwrite would delete sample/mine.de, which this command did not write"
    assert refusal in capsys.readouterr().err
    (tmp_path / "bin.text" / "sample" / "mine.de").unlink()
    main([*command, "--without-tedx", "--overwrite"])
    assert (out / "test.docs").read_text() == "3\n" * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('<seg id="1">a</seg> <seg id="2">b</seg>', r"x\.xml:2: expected at most one segment in a line"),
        ('<seg id="1">a', r"x\.xml:2: expected at most one segment in a line"),
        ("<seg>a</seg>", r"x\.xml:2: expected at most one segment in a line"),
        ("a", r"x\.xml: found no <seg id=…>"),
    ],
)
def test_segments_that_would_be_lost_are_refused(tmp_path, line, message):
    (tmp_path / "x.xml").write_text(f"<doc>\n{line}\n")
    with pytest.raises(UserError, match=message):
        parse_segments(PublishedText(Source("x.xml")), tmp_path)
