"""WMT's corpora from small archives of the same form: every corpus in wmt.toml, and invalid archives."""

import gzip
import json

import pytest

from relumt.cli import main
from relumt.corpora.published_corpora import CORPORA as ALL_CORPORA
from relumt.corpora.published_corpora import Wmt
from relumt.corpora.published_files import SOURCES
from relumt.errors import UserError
from relumt.files import atomic_folder
from tests.corpora.test_published_files import write_tar, write_zip

CORPORA = {name: corpus for name, corpus in ALL_CORPORA.items() if isinstance(corpus, Wmt)}
LINES = 30


def evaluation_set(language, documents=(2, 1)):
    lines = ['<srcset setid="news" srclang="any">']
    for number, segments in enumerate(documents):
        lines.append(f'<DOC sysid="ref" docid="article-{number}" genre="news">')
        lines += [f'<seg id="{i}">„{language} – 今天“ {number}.{i}, said he.</seg>' for i in range(1, segments + 1)]
        lines.append("</DOC>")
    return "\n".join(lines).encode()


def training_text(number, side, language):
    lines = [f"“{language}” line {i} of {number} – is it?" for i in range(LINES)]
    if side == 0:
        lines[3] = ""  # to be dropped
    return "\n".join(lines).encode() + b"\n"


def write_published(corpus, raw):
    """Write every archive of a corpus, with the names that its makers gave to what is in it."""
    archives: dict[str, dict[str, bytes]] = {}
    for number, texts in enumerate(corpus.train):
        sides = [training_text(number, side, language) for side, language in enumerate(corpus.languages)]
        members = archives.setdefault(texts[0].source.name, {})
        if texts[0].separator:
            columns = [sides[side].decode().splitlines() for side in sorted((0, 1), key=lambda i: texts[i].column)]
            lines = [texts[0].separator.join(line) for line in zip(*columns, strict=True)]
            members[texts[0].member] = "\n".join(lines).encode() + b"\n"
            continue
        for text, content in zip(texts, sides, strict=True):
            name = text.member.replace("[hn]", "h").replace("*", "book")
            members[name] = gzip.compress(content) if name.endswith(".gz") else content
    for name in (corpus.valid, corpus.test):
        for text, language in zip(corpus.evaluation_set(name), corpus.languages, strict=True):
            archives.setdefault(text.source.name, {})[text.member] = evaluation_set(language)
    raw.mkdir(exist_ok=True)
    for name, members in archives.items():
        if name.endswith(".zip"):
            write_zip(raw / name, members)
        else:
            write_tar(raw / name, members, "w" if name.endswith(".tar") else "w:gz")


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.usefixtures("unverified")
def test_every_corpus_reads_the_texts_it_lists(name, tmp_path):
    corpus, raw, folder = CORPORA[name], tmp_path / "raw", tmp_path / "texts"
    write_published(corpus, raw)
    assert corpus.download(raw) == sorted(raw.iterdir())
    with atomic_folder(folder) as stage:
        corpus.write(raw, stage)
    source, target = corpus.languages
    for number, language in enumerate((source, target)):
        train = (folder / f"train.{language}").read_text().splitlines()
        assert len(train) == len(corpus.train) * (LINES - 1)
        # normalized punctuation, Moses tokens, one text after the other, without line 3 of each
        assert train[3] == f"&quot; {language} &quot; line 4 of 0 - is it ?"
        assert train[-1].startswith(f"&quot; {language} &quot; line 29 of {len(corpus.train) - 1}")
        raw_test = (folder / f"test.raw.{language}").read_text().splitlines()
        assert raw_test == [f"„{language} – 今天“ {d}, said he." for d in ("0.1", "0.2", "1.1")]
        opening, dash, closing = ("&quot;", "-", "&quot;") if number == 0 else ("„", "–", "“")
        test = (folder / f"test.{language}").read_text().splitlines()
        assert test[0] == f"{opening} {language} {dash} 今 天 {closing} 0.1 , said he ."
    assert (folder / "test.docs").read_text() == (folder / "valid.docs").read_text() == "2\n1\n"


@pytest.fixture
def small(tmp_path, unverified):
    """A folder with small archives of wmt14_en_de in raw/."""
    write_published(CORPORA["wmt14_en_de"], tmp_path / "raw")
    return tmp_path


def run(folder, *options):
    main(["corpus", "wmt14_en_de", "--raw", str(folder / "raw"), "--out", str(folder / "bin"), *options])


def test_another_bpe_does_not_repeat_tokenization(small, capsys):
    run(small, "--vocab-size", "50")
    record = json.loads((small / "bin" / "prepare.json").read_text())
    fields = ("source", "target", "tokenized", "plain_references")
    assert [record[field] for field in fields] == ["en", "de", True, True]
    assert (small / "bin" / "text" / "test.raw.de").read_text().startswith("„de –")
    assert "tokenize train" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(small, "--vocab-size", "40")
    assert "vocab_size was 50, now 40" in capsys.readouterr().err
    run(small, "--vocab-size", "40", "--overwrite")
    repeated = capsys.readouterr().err
    assert "bin.text is up to date" in repeated and "tokenize" not in repeated


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: (raw / "wmt13.tgz").write_bytes(b"nothing"), "wmt13.tgz: broken archive"),
        (lambda raw: write_tar(raw / "wmt13.tgz", {"x": b""}), "wmt13.tgz: contains no test/newstest2013-src.en.sgm"),
        (
            lambda raw: write_tar(
                raw / "training-parallel-commoncrawl.tgz",
                {"commoncrawl.de-en.en": b"A long one.\nB.\n", "commoncrawl.de-en.de": b"B.\n"},
            ),
            "commoncrawl.de-en.en has 2 lines, ",
        ),
    ],
)
def test_invalid_archives_are_reported_and_nothing_is_left(small, capsys, spoil, message):
    spoil(small / "raw")
    with pytest.raises(SystemExit) as stopped:
        run(small)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert sorted(path.name for path in small.iterdir()) == ["raw"]


def test_a_line_without_two_columns_is_reported(tmp_path):
    titles = CORPORA["wmt18_en_fi"].train[-1][0]
    write_tar(tmp_path / titles.source.name, {titles.member: b"yksi ||| one\nno\n"})
    with pytest.raises(UserError, match=r"wiki-titles\.tgz/wiki/fi-en/titles\.fi-en:2: 1 columns, expected two with"):
        list(titles.lines(tmp_path))


def test_every_source_can_be_downloaded_or_requested():
    assert [source.name for source in SOURCES.values() if not (source.urls or source.request)] == []
