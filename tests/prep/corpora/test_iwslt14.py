"""IWSLT14 from files of its form: talks, evaluation sets, the split, and what is left out where."""

import tarfile

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.prep.corpora.iwslt14 import MISALIGNED, TEST_SETS, TestSet, write_test
from relumt.prep.corpora.ted import Segment, lengths_by_talk, read_evaluation, read_training
from relumt.prep.test_subsets import read_subsets

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
def raw(tmp_path):
    folder = tmp_path / "raw" / "de-en"
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        write_training(folder, language)
        for name in TEST_SETS:
            if name == "TEDX.dev2012":
                write_evaluation(folder, name, language, MISALIGNED[0], 150)
            else:
                write_evaluation(folder, name, language)
    return tmp_path / "raw"


def test_training_lines_are_titles_descriptions_and_sentences(raw):
    lines = list(read_training(raw / "de-en" / "train.tags.de-en.en"))
    assert len(lines) == 3 * 42
    assert lines[0] == (True, "Title 0, en") and lines[1] == (False, "TED Talk: it’s 0.")
    assert [number for number, (first, _) in enumerate(lines) if first] == [0, 42, 84]


def test_segments_know_their_talk(raw):
    segments = read_evaluation(raw / "de-en" / "IWSLT14.TED.tst2010.de-en.de.xml")
    assert segments[1] == Segment("69", 2, "The U.S. and “you’ll” see 2 things.")


@pytest.mark.parametrize(
    ("which", "lines", "documents"),
    [
        (TestSet(), 12 + 150, [3, 150, 3, 3, 3]),
        (TestSet(tedx=False), 12, [3, 3, 3, 3]),
        (TestSet(misaligned=False), 12 + 150 - 72, [3, 70, 8, 3, 3, 3]),
    ],
)
def test_the_test_set_is_the_one_asked_for(raw, tmp_path, which, lines, documents):
    write_test(raw, tmp_path, which)
    german, english = ((tmp_path / f"test.{language}").read_text().splitlines() for language in ("de", "en"))
    assert len(german) == len(english) == lines
    assert english[0] == "the u.s. and “ you &apos;ll ” see 1 things ."
    assert [int(line) for line in (tmp_path / "test.docs").read_text().split()] == documents
    raw_english = (tmp_path / "test.raw.en").read_text().splitlines()
    assert len(raw_english) == lines and raw_english[0] == "The U.S. and “you'll” see 1 things."


def test_the_test_set_says_which_smaller_ones_are_in_it(raw, tmp_path):
    write_test(raw, tmp_path, TestSet())
    parts = read_subsets(tmp_path / "test.subsets.json", 162)
    assert parts["without TEDX.dev2012, as [RF]"] == list(range(3, 153))
    assert parts["without 72 misaligned pairs"] == list(range(3 + 70, 3 + 142))
    write_test(raw, tmp_path, TestSet(misaligned=False))
    assert list(read_subsets(tmp_path / "test.subsets.json", 90)) == ["without TEDX.dev2012, as [RF]"]
    write_test(raw, tmp_path, TestSet(tedx=False))
    assert read_subsets(tmp_path / "test.subsets.json", 12) == {}


def test_talks_end_where_segments_are_missing():
    assert lengths_by_talk([Segment("a", 1, ""), Segment("a", 2, ""), Segment("a", 4, ""), Segment("b", 5, "")]) == [
        2,
        1,
        1,
    ]


def test_the_command_makes_texts_and_a_data_bin_from_the_archive(raw, tmp_path):
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


def test_repeating_does_nothing_and_another_test_set_is_refused(raw, tmp_path, capsys):
    out = tmp_path / "bin"
    command = ["corpus", "iwslt14_de_en", "--raw", str(raw), "--out", str(out), "--vocab-size", "60"]
    main(command)
    capsys.readouterr()
    main(command)
    assert [line.split(" is ")[1] for line in capsys.readouterr().err.splitlines()] == ["up to date"] * 2
    before = (tmp_path / "bin.text" / "test.en").read_text()
    with pytest.raises(SystemExit):
        main([*command, "--without-tedx"])
    assert "bin.text: exists, and was made otherwise; give --overwrite" in capsys.readouterr().err
    assert (tmp_path / "bin.text" / "test.en").read_text() == before
    main([*command, "--without-tedx", "--overwrite"])
    assert (out / "test.docs").read_text() == "3\n" * 4


def test_what_is_not_ours_is_not_replaced(raw, tmp_path, capsys):
    (tmp_path / "bin.text").mkdir()
    (tmp_path / "bin.text" / "notes").write_text("mine")
    with pytest.raises(SystemExit):
        main(["corpus", "iwslt14_de_en", "--raw", str(raw), "--out", str(tmp_path / "bin")])
    assert "bin.text: exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["corpus", "iwslt14_de_en", "--raw", str(raw), "--out", str(tmp_path / "bin"), "--overwrite"])
    assert "bin.text: not made by this command" in capsys.readouterr().err
    assert (tmp_path / "bin.text" / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda raw: (raw / "de-en" / "train.tags.de-en.de").unlink(),
            "needs one file train.tags.de-en.de, found none",
        ),
        (lambda raw: write_evaluation(raw, "TED.tst2010", "en"), "needs one file *TED.tst2010.de-en.en.xml, found /"),
        (lambda raw: write_training(raw / "de-en", "de", sentences=39), "has 123 lines but"),
        (lambda raw: (raw / "de-en.tgz").write_bytes(b"no archive"), "de-en.tgz: broken"),
    ],
)
def test_mistakes_end_in_one_line_and_leave_nothing(raw, tmp_path, capsys, spoil, message):
    spoil(raw)
    with pytest.raises(SystemExit) as stopped:
        main(["corpus", "iwslt14_de_en", "--raw", str(raw), "--out", str(tmp_path / "out" / "bin")])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_an_evaluation_set_without_segments_is_refused(tmp_path):
    (tmp_path / "x.xml").write_text("<doc>\n")
    with pytest.raises(UserError, match="no <seg id=…> in it"):
        read_evaluation(tmp_path / "x.xml")
