"""Every corpus of corpora.toml from small files of the same form, and files that are invalid."""

import json
import re
from dataclasses import replace

import pytest

from relumt.cli import main
from relumt.corpora.bitext import read_subsets
from relumt.corpora.published_corpora import CORPORA
from relumt.corpora.published_files import SOURCES, Source
from relumt.corpora.published_texts import FORMS, PublishedText, copy_texts
from relumt.errors import UserError
from relumt.folders import atomic_folder
from tests.corpora.published_cases import LINES, write_published, write_tar

WMT = [name for name in CORPORA if name.startswith("wmt")]
IWSLT14 = CORPORA["iwslt14_de_en"]

pytestmark = pytest.mark.usefixtures("unverified")


def write_texts(name, folder, **changes):
    """Write the texts of a corpus from small files; return their lines by name."""
    corpus = replace(CORPORA[name], **changes)
    write_published(corpus, folder / "raw")
    with atomic_folder(folder / "texts") as stage:
        corpus.write(folder / "raw", stage)
    return {path.name: path.read_text().splitlines() for path in (folder / "texts").iterdir()}


def run(name, folder, *options):
    main(["corpus", name, "--raw", str(folder / "raw"), "--out", str(folder / "bin"), "--vocab-size", "50", *options])
    return folder / "bin"


def numbers(lines):
    return [int(line) for line in lines]


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_reads_the_files_it_lists_and_becomes_a_data_bin(name, tmp_path):
    corpus = CORPORA[name]
    write_published(corpus, tmp_path / "raw")
    assert corpus.download(tmp_path / "raw") == sorted((tmp_path / "raw").iterdir())
    out = run(name, tmp_path)
    record = json.loads((out / "prepare.json").read_text())
    assert (record["source"], record["target"]) == corpus.languages
    assert [record[key] for key in ("tokenized", "lowercased", "punctuation_normalized", "plain_references")] == [
        True, corpus.lowercased, corpus.punctuation_normalized, not corpus.tokenized
    ]  # fmt: skip
    assert record["counts"]["dropped"] == {}  # the corpus was cleaned before
    for split in ("train", "valid", "test"):
        lengths = out / f"{split}.docs"
        assert not lengths.exists() or sum(numbers(lengths.open())) == record["counts"]["binarized"][split]
    words = (out / f"dict.{corpus.languages[0]}.txt").read_text().split()
    assert ("<sep>" in words) == (corpus.separator is not None)


@pytest.mark.parametrize("name", WMT)
def test_the_texts_of_wmt(name, tmp_path):
    texts, corpus = write_texts(name, tmp_path), CORPORA[name]
    for side, language in enumerate(corpus.languages):
        train = texts[f"train.{language}"]
        assert len(train) == len(corpus.train) * (LINES - 1)
        # normalized punctuation, Moses tokens, one text after the other, without line 3 of each
        assert train[3] == f"&quot; {language} &quot; line 4 of 1 - is it ?"
        assert train[-1].startswith(f"&quot; {language} &quot; line 29 of {len(corpus.train)}")
        assert texts[f"test.raw.{language}"] == [f"„{language} – 今天“ {d}, said he." for d in ("0.1", "0.2", "1.1")]
        opening, dash, closing = ("„", "–", "“") if side else ("&quot;", "-", "&quot;")
        assert texts[f"test.{language}"][0] == f"{opening} {language} {dash} 今 天 {closing} 0.1 , said he ."
    assert texts["test.docs"] == texts["valid.docs"] == ["2", "1"]


def test_multi30k_is_used_as_it_is_published(tmp_path):
    texts = write_texts("multi30k_de_en", tmp_path)
    for split, published in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        published_lines = (tmp_path / "raw" / f"{published}.lc.norm.tok.de").read_text().splitlines()
        assert texts[f"{split}.de"] == published_lines
    assert len(texts) == 6


def test_the_test_set_of_iwslt14_describes_its_subsets(tmp_path):
    texts = write_texts("iwslt14_de_en", tmp_path)
    assert numbers(texts["test.docs"]) == [3, 150, 3, 3, 3]
    assert len(texts["test.de"]) == len(texts["test.en"]) == len(texts["test.raw.en"]) == 162
    assert texts["test.en"][0] == "the u.s. and “ you &apos;ll ” see 1 things ."
    assert texts["test.raw.en"][0] == "The U.S. and “you'll” see 1 things."
    assert read_subsets(tmp_path / "texts" / "test.subsets.json", 162) == {
        "without TEDX.dev2012, as [RF]": list(range(3, 153)),
        "without 72 misaligned pairs": list(range(3 + 70, 3 + 142)),
    }


def test_every_23rd_pair_of_iwslt14_is_for_validation(tmp_path):
    texts, pairs = write_texts("iwslt14_de_en", tmp_path), 3 * 42
    assert len(texts["valid.en"]) == pairs // 23 and len(texts["train.en"]) == pairs - pairs // 23
    assert texts["train.de"][0] == "title 0 , de" and texts["train.en"][1].startswith("ted talk : it ’ s 0 .")
    assert texts["valid.en"][0] == "sentence 20 of talk 0 , isn &apos;t it ?"
    assert texts["valid.raw.en"][0] == "Sentence 20 of talk 0, isn't it?"
    # a document ends where a pair was taken out
    assert numbers(texts["train.docs"]) == [22, 19, 3, 22, 15, 7, 22, 11]


def test_the_documents_on_request_are_preferred(tmp_path):
    corpus = CORPORA["europarl7_en_de"]
    write_published(corpus, tmp_path / "raw", skip_requested=False)
    path = tmp_path / "raw" / corpus.on_request[0][0].path
    path.write_text(path.read_text().replace("en: Line 1 of 0.", ""))
    out = run("europarl7_en_de", tmp_path)
    assert numbers((out / "train.docs").open()) == [1, 1, 2]  # the empty line ends the first document
    assert numbers((out / "test.docs").open()) == [3, 2]
    texts = tmp_path / "bin.text"
    assert (texts / "train.en").read_text().splitlines()[0] == "en : Line 0 of 0 ."
    assert (texts / "test.raw.de").read_text().splitlines()[0] == "de: Line 0 of 0."


def test_running_text_is_cut_and_held_out_pairs_are_removed(tmp_path):
    texts = write_texts("europarl7_en_de", tmp_path)
    assert numbers(texts["train.docs"]) == [40, 10, 10, 1, 26, 10]  # a session from the 50th line, and cut after 40
    assert not any("of 1" in line or "line 62 " in line or "line 63 " in line for line in texts["train.en"])
    assert len(texts["train.en"]) == len(texts["train.de"]) == 97


def test_the_small_corpus_is_the_start_of_running_text(tmp_path):
    assert CORPORA["europarl7_small"].settings() == {"first": 20_000}
    train = [tuple(replace(text, first=7) for text in pair) for pair in CORPORA["europarl7_small"].train]
    texts = write_texts("europarl7_small", tmp_path, train=train)
    assert len(texts["train.en"]) == 7 and texts["train.docs"] == ["7"]


def test_another_bpe_does_not_repeat_tokenization_and_other_texts_need_overwrite(tmp_path, capsys, monkeypatch):
    write_published(IWSLT14, tmp_path / "raw")
    run("iwslt14_de_en", tmp_path)
    assert "tokenize train" in capsys.readouterr().err
    run("iwslt14_de_en", tmp_path)
    assert [line.split(" is ")[1] for line in capsys.readouterr().err.splitlines()] == ["up to date"] * 2
    run("iwslt14_de_en", tmp_path, "--vocab-size", "40", "--overwrite")
    repeated = capsys.readouterr().err
    assert "bin.text is up to date" in repeated and "tokenize" not in repeated
    monkeypatch.setattr("relumt.corpora.build.version", lambda _: "0")
    with pytest.raises(SystemExit):
        run("iwslt14_de_en", tmp_path)
    assert re.search(r"bin.text exists, but sacremoses was .*, now 0; give --overwrite", capsys.readouterr().err)
    run("iwslt14_de_en", tmp_path, "--overwrite")
    assert "tokenize train" in capsys.readouterr().err


def test_invalid_archives_are_reported_and_nothing_is_left(tmp_path, capsys):
    write_published(CORPORA["wmt14_en_de"], tmp_path / "raw")
    sides = {"commoncrawl.de-en.en": b"A long one.\nB.\n", "commoncrawl.de-en.de": b"B.\n"}
    write_tar(tmp_path / "raw" / "training-parallel-commoncrawl.tgz", sides)
    with pytest.raises(SystemExit, match="2"):
        run("wmt14_en_de", tmp_path)
    assert "commoncrawl.de-en.en has 2 lines, " in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize("line", ['<seg id="1">a</seg> <seg id="2">b</seg>', '<seg id="1">a', "<seg>a</seg>"])
def test_segments_that_would_be_lost_are_refused(tmp_path, line):
    (tmp_path / "x").write_text(f"<doc>\n{line}\n")
    text = PublishedText(Source("x"), form="segments")
    with pytest.raises(UserError, match=r"x:2: expected at most one segment in a line"):
        copy_texts([(text, text)], tmp_path, (tmp_path / "1", tmp_path / "2"))


def test_a_line_without_two_columns_is_reported(tmp_path):
    titles = CORPORA["wmt18_en_fi"].train[-1][0]
    write_tar(tmp_path / titles.source.name, {titles.member: b"yksi ||| one\nno\n"})
    with pytest.raises(UserError, match=r"wiki-titles\.tgz/wiki/fi-en/titles\.fi-en:2: 1 columns, expected two with"):
        list(titles.lines(tmp_path))


def test_every_source_can_be_downloaded_or_requested_and_every_form_is_used():
    assert [source.name for source in SOURCES.values() if not (source.urls or source.request)] == []
    pairs = [pair for corpus in CORPORA.values() for pair in (*corpus.train, *corpus.test, *corpus.on_request)]
    assert {text.form for pair in pairs for text in pair} == FORMS.keys()
