"""WMT's corpora from small archives of their form: every row of the registry, what is read from where, mistakes."""

import dataclasses
import gzip
import json

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.prep.corpora import registry
from relumt.prep.corpora.download import Source
from relumt.prep.corpora.registry import CORPORA, WMT14_EN_DE, WMT18_EN_FI
from relumt.prep.corpora.wmt import Wmt
from relumt.prep.progress import Steps
from tests.prep.corpora.test_packed import write_tar, write_zip

ROWS = {name: corpus for name, corpus in CORPORA.items() if isinstance(corpus, Wmt)}
LINES = 30


def sgm(language, kind, documents=(2, 1)):
    lines = [f'<{kind} setid="news" srclang="any">']
    for number, segments in enumerate(documents):
        lines.append(f'<DOC sysid="ref" docid="article-{number}" genre="news">')
        lines += [f'<seg id="{i}">„{language} – 今天“ {number}.{i}, said he.</seg>' for i in range(1, segments + 1)]
        lines.append("</DOC>")
    return "\n".join(lines).encode()


def side(part, number, language):
    lines = [f"“{language}” line {i} of {part} – is it?" for i in range(LINES)]
    if number == 0:
        lines[3] = ""  # a pair of no use
    return "\n".join(lines).encode() + b"\n"


def write_parts(corpus, raw):
    """Every archive of a corpus, with the names that its makers gave to what is in it."""
    archives: dict[str, dict[str, bytes]] = {}
    for number, part in enumerate(corpus.train):
        members = archives.setdefault(part.archive.name, {})
        sides = [side(number, k, language) for k, language in enumerate(corpus.languages)]
        if part.separator:
            in_file = [sides[part.columns.index(k)].decode().splitlines() for k in (0, 1)]
            rows = [part.separator.join(row) for row in zip(*in_file, strict=True)]
            members[part.members[0]] = "\n".join(rows).encode() + b"\n"
            continue
        for member, text in zip(part.members, sides, strict=True):
            name = member.replace("[hn]", "h").replace("*", "book")
            members[name] = gzip.compress(text) if name.endswith(".gz") else text
    for name in (corpus.valid, corpus.test):
        part = corpus.evaluation(name)
        members = archives.setdefault(part.archive.name, {})
        for member, language in zip(part.members, corpus.languages, strict=True):
            members[member] = sgm(language, "srcset")
    raw.mkdir(exist_ok=True)
    for name, members in archives.items():
        if name.endswith(".zip"):
            write_zip(raw / name, members)
        else:
            write_tar(raw / name, members, "w" if name.endswith(".tar") else "w:gz")


def unchecked(corpus, monkeypatch):
    """The corpus without checksums, which small archives do not have."""
    parts = tuple(
        dataclasses.replace(part, archive=dataclasses.replace(part.archive, checksum=None, size=None))
        for part in corpus.train
    )
    evaluation = Wmt.evaluation

    def of_set(self, name):
        part = evaluation(self, name)
        return dataclasses.replace(part, archive=dataclasses.replace(part.archive, checksum=None))

    monkeypatch.setattr(Wmt, "evaluation", of_set)
    return dataclasses.replace(corpus, train=parts)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_reads_what_it_names(name, tmp_path, monkeypatch):
    corpus = unchecked(ROWS[name], monkeypatch)
    raw, folder, scratch = tmp_path / "raw", tmp_path / "texts", tmp_path / "scratch"
    write_parts(corpus, raw)
    folder.mkdir()
    scratch.mkdir()
    assert sorted(path.name for path in corpus.files(raw, Steps())) == sorted({p.name for p in raw.iterdir()})
    corpus.write(raw, folder, scratch, Steps())
    source, target = corpus.languages
    for number, language in enumerate((source, target)):
        train = (folder / f"train.{language}").read_text().splitlines()
        assert len(train) == len(corpus.train) * (LINES - 1)
        # plain punctuation, Moses tokens, one part after the other; line 3 of each was of no use
        assert train[3] == f"&quot; {language} &quot; line 4 of 0 - is it ?"
        assert train[-1].startswith(f"&quot; {language} &quot; line 29 of {len(corpus.train) - 1}")
        raw_test = (folder / f"test.raw.{language}").read_text().splitlines()
        assert raw_test == [f"„{language} – 今天“ {d}, said he." for d in ("0.1", "0.2", "1.1")]
        opening, dash, closing = ("&quot;", "-", "&quot;") if number == 0 else ("„", "–", "“")
        test = (folder / f"test.{language}").read_text().splitlines()
        assert test[0] == f"{opening} {language} {dash} 今 天 {closing} 0.1 , said he ."
    assert (folder / "test.docs").read_text() == (folder / "valid.docs").read_text() == "2\n1\n"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The command's corpus with archives of its own in `tmp_path`/raw."""
    corpus = unchecked(WMT14_EN_DE, monkeypatch)
    monkeypatch.setitem(registry.CORPORA, "wmt14_en_de", corpus)
    write_parts(corpus, tmp_path / "raw")
    return tmp_path


def run(folder, *options):
    main(["corpus", "wmt14_en_de", "--raw", str(folder / "raw"), "--out", str(folder / "bin"), *options])


def test_the_command_makes_a_data_bin_and_another_bpe_repeats_no_tokenisation(small, capsys):
    run(small, "--vocab-size", "50")
    record = json.loads((small / "bin" / "prepare.json").read_text())
    assert (record["source"], record["target"], record["tokenized"], record["plain_references"]) == (
        "en",
        "de",
        True,
        True,
    )
    assert (small / "bin" / "text" / "test.raw.de").read_text().startswith("„de –")
    assert "tokenise train.en" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(small, "--vocab-size", "40")
    assert "vocab_size was 50, now 40" in capsys.readouterr().err
    run(small, "--vocab-size", "40", "--overwrite")
    repeated = capsys.readouterr().err
    assert "bin.text is up to date" in repeated and "tokenise" not in repeated


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: (raw / "wmt13.tgz").write_bytes(b"nothing"), "wmt13.tgz: broken"),
        (lambda raw: write_tar(raw / "wmt13.tgz", {"x": b""}), "wmt13.tgz: no test/newstest2013-src.en.sgm in it"),
        (
            lambda raw: write_tar(
                raw / "training-parallel-commoncrawl.tgz",
                {"commoncrawl.de-en.en": b"A long one.\nB.\n", "commoncrawl.de-en.de": b"B.\n"},
            ),
            "commoncrawl.de-en.en has 2 lines but",
        ),
    ],
)
def test_mistakes_end_in_one_line_and_leave_nothing(small, capsys, spoil, message):
    spoil(small / "raw")
    with pytest.raises(SystemExit) as stopped:
        run(small)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert sorted(path.name for path in small.iterdir()) == ["raw"]


def test_switches_of_another_corpus_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path, "--without-tedx")
    assert "are of IWSLT14, not of wmt14_en_de" in capsys.readouterr().err


def test_a_line_that_does_not_hold_two_sides_is_named(tmp_path):
    titles = WMT18_EN_FI.train[-1]
    write_tar(tmp_path / titles.archive.name, {titles.members[0]: b"yksi ||| one\nno\n"})
    with pytest.raises(UserError, match=r"wiki-titles\.tgz/wiki/fi-en/titles\.fi-en:2: 1 sides, not two"):
        list(titles.lines(tmp_path, 0))


def test_sources_say_where_to_go():
    archives = {part.archive for corpus in ROWS.values() for part in corpus.train}
    assert all(isinstance(archive, Source) and (archive.urls or archive.ask) for archive in archives)
    assert len({archive.name for archive in archives}) == len(archives)
